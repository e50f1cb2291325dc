"""What an entry of a journal changed: two states held against each other, by run, frame and call."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from runtime.core.continuation import Continuation
from runtime.core.documents import codec
from runtime.queries.redaction import redacted

# What every entry changes, or what stands below with a line of its own.
_LEFT_OUT = frozenset({"schema", "run", "position", "head", "frames", "calls", "agents"})


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChange:
    """One change. `place` is empty for the run, else a frame or `frame/call`, and `name` its agent or tool.

    `before` and `after` are JSON without secrets; of messages only how many there are.
    """

    place: str
    name: str
    part: str
    before: Any
    after: Any


def changes_of(before: Continuation, after: Continuation) -> tuple[StateChange, ...]:
    """Everything in which the two differ: of the run, then frame by frame, each with its calls."""
    was, now = _document(before), _document(after)
    found = list(_changed("", "", was, now))
    for name in {**was["frames"], **now["frames"]}:
        found += _of_frame(name, was["frames"].get(name), now["frames"].get(name))
    return tuple(found)


def _document(now: Continuation) -> dict[str, Any]:
    document: dict[str, Any] = redacted(codec.document_of(now))
    return document


def _of_frame(
    name: str, was: dict[str, Any] | None, now: dict[str, Any] | None
) -> Iterator[StateChange]:
    agent = (now or was or {})["agent"]
    yield from _changed(name, agent, was, now)
    before, after = _calls(was), _calls(now)
    if now is not None:
        for call in {**before, **after}:
            tool = (after.get(call) or before[call])["tool"]
            yield from _changed(f"{name}/{call}", tool, before.get(call), after.get(call))


def _calls(frame: dict[str, Any] | None) -> dict[str, dict[str, Any]]:
    return {call["id"]: call for call in frame["calls"]} if frame else {}


def _changed(
    place: str, name: str, was: dict[str, Any] | None, now: dict[str, Any] | None
) -> Iterator[StateChange]:
    """What is new or gone has one line with its state, what is still there one for each part that changed."""
    if was is None or now is None:
        before, after = (was or {}).get("state"), (now or {}).get("state")
        yield StateChange(place=place, name=name, part="state", before=before, after=after)
        return
    for part in now:
        before, after = _shown(part, was.get(part)), _shown(part, now[part])
        if part not in _LEFT_OUT and before != after:
            yield StateChange(place=place, name=name, part=part, before=before, after=after)


def _shown(part: str, value: Any) -> Any:
    if part == "messages":
        return len(value)
    if part == "pending":
        return [" → ".join(gate["path"]) for gate in value]
    return value

"""Compares the states before and after an entry, by run, frame and call."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from runtime.core.documents import continuations
from runtime.core.run.continuation import Continuation
from runtime.queries.redaction import redact

# Fields that every entry changes, or that have lines of their own.
_LEFT_OUT = frozenset({"schema", "run", "position", "head", "frames", "calls", "agents"})


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChange:
    """One change. `place` is empty for the run, else a frame or `frame/call`, and `name` its agent or tool.

    `before` and `after` are JSON with secrets redacted; messages are only counted.
    """

    place: str
    name: str
    part: str
    before: Any
    after: Any


def changes_of(before: Continuation, after: Continuation) -> tuple[StateChange, ...]:
    """Return all differences: of the run, then of each frame with its calls."""
    was, now = _document(before), _document(after)
    found = list(_changed("", "", was, now))
    for name in {**was["frames"], **now["frames"]}:
        found += _of_frame(name, was["frames"].get(name), now["frames"].get(name))
    return tuple(found)


def _document(now: Continuation) -> dict[str, Any]:
    document: dict[str, Any] = redact(continuations.document_of(now))
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
    """Yield one change of state for an added or removed item, else one change for each part that differs."""
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

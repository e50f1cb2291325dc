"""Computes the continuation of a run after an entry of its journal.

It uses the engine's core, but verifies nothing, and no run resumes from the result.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from runtime.core.documents import continuations
from runtime.core.run.continuation import Continuation, Pending
from runtime.core.values.enums import CallState
from runtime.reads.entries import paths_of, texts_of
from runtime.reads.journal import latest, remaining
from runtime.reads.redaction import redact
from runtime.reads.trace.fold import fold
from runtime.reads.transcript import transcript_of

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
    changes = list(_compare_item("", "", was, now))
    for name in {**was["frames"], **now["frames"]}:
        changes += _compare_frame(name, was["frames"].get(name), now["frames"].get(name))
    return tuple(changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameAt:
    """An open frame. `calls` are the calls of its turn, each with its state."""

    id: str
    agent: str
    state: str
    turn: int
    calls: tuple[tuple[str, CallState], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StateAt:
    """The state after an entry, whose `events` are types and whose `texts` are words.

    `document` is the continuation with secrets redacted; None if entry `unreadable` cannot be folded.
    """

    position: int
    at: datetime | None
    events: tuple[str, ...]
    texts: tuple[str, ...]
    pending: tuple[Pending, ...]
    frames: tuple[FrameAt, ...]
    document: Any
    unreadable: int | None
    moves: tuple[StateChange, ...]

    @property
    def previous(self) -> int:
        """The entry before this one."""
        return self.position - 1

    @property
    def next(self) -> int:
        """The entry after this one."""
        return self.position + 1


def state_after(run: UUID, position: int) -> StateAt | None:
    """Return the state after entry `position`; None if there is no such entry. The caller has checked access."""
    journal = remaining(run, until=position)
    lines = journal.lines
    if not lines or lines[-1].position != position:
        return None
    last = lines[-1].entry
    before = latest(journal.start, lines[:-1])
    reached = latest(before, lines[-1:])
    now = reached if reached.position == position else None
    return StateAt(
        position=position,
        at=last.at if last else None,
        events=tuple(event.type for event in last.events) if last else (),
        texts=texts_of(lines[-1], paths_of(transcript_of(fold(journal)))),
        pending=now.pending if now else (),
        frames=tuple(
            FrameAt(
                id=frame.id,
                agent=frame.agent,
                state=frame.state,
                turn=frame.turn,
                calls=tuple((call.tool, call.state) for call in frame.of_turn()),
            )
            for frame in (now.frames.values() if now else ())
        ),
        document=redact(continuations.document_of(now)) if now else None,
        unreadable=None if now else reached.position + 1,
        moves=changes_of(before, now) if now else (),
    )


def _document(now: Continuation) -> dict[str, Any]:
    document: dict[str, Any] = redact(continuations.document_of(now))
    return document


def _compare_frame(
    name: str, was: dict[str, Any] | None, now: dict[str, Any] | None
) -> Iterator[StateChange]:
    agent = (now or was or {})["agent"]
    yield from _compare_item(name, agent, was, now)
    before, after = _calls(was), _calls(now)
    if now is not None:
        for call in {**before, **after}:
            tool = (after.get(call) or before[call])["tool"]
            yield from _compare_item(f"{name}/{call}", tool, before.get(call), after.get(call))


def _calls(frame: dict[str, Any] | None) -> dict[str, dict[str, Any]]:
    return {call["id"]: call for call in frame["calls"]} if frame else {}


def _compare_item(
    place: str, name: str, was: dict[str, Any] | None, now: dict[str, Any] | None
) -> Iterator[StateChange]:
    """Yield one change of state for an added or removed item, else one change for each part that differs."""
    if was is None or now is None:
        before, after = (was or {}).get("state"), (now or {}).get("state")
        yield StateChange(place=place, name=name, part="state", before=before, after=after)
        return
    for part in now:
        before, after = _comparable_value(part, was.get(part)), _comparable_value(part, now[part])
        if part not in _LEFT_OUT and before != after:
            yield StateChange(place=place, name=name, part=part, before=before, after=after)


def _comparable_value(part: str, value: Any) -> Any:
    if part == "messages":
        return len(value)
    if part == "pending":
        return [" → ".join(gate["path"]) for gate in value]
    return value

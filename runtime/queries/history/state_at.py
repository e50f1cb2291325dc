"""Computes the continuation of a run after an entry of its journal.

It uses the engine's core, but verifies nothing, and no run resumes from the result.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from runtime.core.documents import continuations
from runtime.core.run.continuation import Continuation, Pending
from runtime.core.values.enums import CallState
from runtime.queries.history.entry_texts import paths_of, texts_of
from runtime.queries.history.state_diff import StateChange, changes_of
from runtime.queries.journal import latest, remaining
from runtime.queries.redaction import redact
from runtime.queries.spans.fold import fold
from runtime.queries.transcript.transcript import transcript_of


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
        frames=_frames(now) if now else (),
        document=redact(continuations.document_of(now)) if now else None,
        unreadable=None if now else reached.position + 1,
        moves=changes_of(before, now) if now else (),
    )


def _frames(now: Continuation) -> tuple[FrameAt, ...]:
    return tuple(
        FrameAt(
            id=frame.id,
            agent=frame.agent,
            state=frame.state,
            turn=frame.turn,
            calls=tuple((call.tool, call.state) for call in frame.of_turn()),
        )
        for frame in now.frames.values()
    )

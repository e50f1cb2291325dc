"""Folds a journal into a continuation, and records the calls that a worker finds running when it takes over."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from runtime.core.call_states import CallState
from runtime.core.continuation import Continuation
from runtime.core.events import Event, OutcomeUnknown, RetryScheduled
from runtime.core.fast_replace import replace
from runtime.core.machine.active_time import advance_clock
from runtime.core.machine.calls.retries import on_worker_lost
from runtime.core.machine.reducer import evolve


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The events of one commit, and its database time."""

    at: datetime
    events: tuple[Event, ...]


def initial(run: UUID) -> Continuation:
    """Return a run without events."""
    return Continuation(run=run)


def fold(now: Continuation, events: Iterable[Event]) -> Continuation:
    """Return the continuation after all `events`. Raises what evolve raises."""
    for event in events:
        now = evolve(now, event)
    return now


def step(now: Continuation, events: Iterable[Event], *, head: str, at: datetime) -> Continuation:
    """Return the continuation after one entry, written at `at`, whose MAC is `head`."""
    after = replace(fold(now, events), position=now.position + 1, head=head)
    return advance_clock(now, after, at)


def recover(
    now: Continuation, writes: Mapping[str, tuple[str, ...]] | None = None
) -> tuple[RetryScheduled | OutcomeUnknown, ...]:
    """Return the events for a worker that takes over: every started call has lost its worker.

    `writes` names, by frame, the tools that have become writes since the frame opened.
    """
    return tuple(
        on_worker_lost(frame.id, call, is_write=call.tool in (writes or {}).get(frame.id, ()))
        for frame in now.frames.values()
        for call in frame.calls
        if call.state is CallState.STARTED
    )

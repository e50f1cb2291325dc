"""Measures active time: the time between entries, minus the time the run only waited.

A run waits for people, times, events, and providers whose models do not reply. The time before another attempt counts
as active until each model was tried. Active time is measured only if a budget limits it. An entry's own time starts
and stops the clock.
"""

from datetime import datetime, timedelta

from runtime.core.call_states import CallState
from runtime.core.continuation import Continuation, Wait
from runtime.core.enums import GateKind
from runtime.core.fast_replace import replace
from runtime.core.machine.planning import plan


def advance_clock(before: Continuation, after: Continuation, at: datetime) -> Continuation:
    """Return `after`, an entry written at `at`, with the active time since `before` added."""
    if before.ticking is None and not _timed(after):
        return after
    return replace(after, worked=active_seconds(after, at), ticking=at if _at_work(after) else None)


def active_seconds(now: Continuation, at: datetime) -> float:
    """Return the active seconds until `at`."""
    if now.ticking is None:
        return now.worked
    return now.worked + max(0.0, (at - now.ticking).total_seconds())


def exhausted_at(now: Continuation) -> datetime | None:
    """Return the time at which a waiting retry would exhaust the limit; None if no retry waits or no limit is set."""
    if now.ticking is None:
        return None
    left = []
    for wait in now.retries():
        if now.budget is not None and now.budget.seconds is not None:
            left.append(now.budget.seconds - now.worked)
        at: str | None = wait.frame
        while at is not None:
            frame = now.frame(at)
            if frame.budget is not None and frame.budget.seconds is not None:
                left.append(frame.budget.seconds - (now.worked - frame.since))
            at = frame.parent
    return now.ticking + timedelta(seconds=min(left)) if left else None


def is_blocked(now: Continuation) -> bool:
    """Say whether the whole run is blocked, so nothing new starts: paused, or waiting for a grant."""
    return now.paused is not None or any(pending.kind is GateKind.LIMIT for pending in now.pending)


def _timed(now: Continuation) -> bool:
    for budget in (now.budget, *[frame.budget for frame in now.frames.values()]):
        if budget is not None and budget.seconds is not None:
            return True
    return False


def _at_work(now: Continuation) -> bool:
    """Say whether the run is active: an effect runs, is planned or waits to be retried, and no limit blocks the run."""
    if now.ended or is_blocked(now):
        return False
    started = any(
        call.state is CallState.STARTED
        for frame in now.frames.values()
        for call in frame.open_calls()
    )
    return started or bool(plan(now)) or any(_counts(now, wait) for wait in now.retries())


def _counts(now: Continuation, wait: Wait) -> bool:
    outage = now.frame(wait.frame).outage if wait.call is None else None
    return outage is None or outage.rounds == 0

"""How long a run has been at work: the time between its entries, without that in which it only waits.

What it waits for are people, times, events, and providers whose models do not answer; the time before
another attempt counts until each model was tried. Kept only where somebody limits it. An entry's own time
says when the clock starts and stands still.
"""

from datetime import datetime, timedelta

from runtime.core.continuation import CallState, Continuation, Wait
from runtime.core.enums import GateKind
from runtime.core.fast_replace import replace
from runtime.core.machine.planning import plan


def advance_clock(before: Continuation, after: Continuation, at: datetime) -> Continuation:
    """`after` an entry that was written at `at`, with the time that has passed since `before`."""
    if before.ticking is None and not _timed(after):
        return after
    return replace(after, worked=active_seconds(after, at), ticking=at if _at_work(after) else None)


def active_seconds(now: Continuation, at: datetime) -> float:
    """Seconds at work until `at`."""
    if now.ticking is None:
        return now.worked
    return now.worked + max(0.0, (at - now.ticking).total_seconds())


def exhausted_at(now: Continuation) -> datetime | None:
    """When the time of something that waits for a retry is used up; None if nothing waits or limits it."""
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
    """Whether people hold the whole run up, so that nothing new starts: paused, or asked to grant more."""
    return now.paused is not None or any(pending.kind is GateKind.LIMIT for pending in now.pending)


def _timed(now: Continuation) -> bool:
    for budget in (now.budget, *[frame.budget for frame in now.frames.values()]):
        if budget is not None and budget.seconds is not None:
            return True
    return False


def _at_work(now: Continuation) -> bool:
    """Whether something is under way, planned or waits for its time, and no limit holds it all."""
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

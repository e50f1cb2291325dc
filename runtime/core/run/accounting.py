"""Keeps the accounts of budgets: amounts are reserved when an effect starts and charged when its outcome arrives.

A started call reserves one call. A model call reserves one turn, the tokens of its conversation and a long reply, and
their price. No effect starts if charged and reserved amounts together exhaust a limit it needs. So a limit is exceeded
by at most one reservation, unless a call uses more than it reserved. If the charged amounts alone exhaust a limit, the
run stops at a limit gate before the next effect that needs it. The usage of a frame counts for every frame above it and
for the run.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from runtime.core.run import events, planning
from runtime.core.run.continuation import Continuation, Frame, Phase, replace
from runtime.core.run.planning import AnswerInquiry, CallModel, Command, OpenFrame, StartTool
from runtime.core.values.budgets import (
    NO_LIMITS,
    NOTHING,
    REPLY_TOKENS,
    Amount,
    BudgetGate,
    BudgetLimits,
    ExhaustedLimit,
    Limit,
    Rates,
    Spent,
    count_tokens,
)
from runtime.core.values.enums import CallState
from runtime.core.values.errors import IllegalTransition, UnknownSubject
from runtime.core.values.ids import compute_depth

_ASKING = (Limit.TURNS, Limit.TOKENS, Limit.MICROS, Limit.SECONDS)
_STARTING = (Limit.CALLS, Limit.SECONDS)
_OPENING = (Limit.DEPTH, Limit.SECONDS)
_WAITING = (Limit.SECONDS,)
_COUNTED = {
    CallModel: (Limit.TURNS, Limit.TOKENS, Limit.MICROS),
    AnswerInquiry: (Limit.TOKENS, Limit.MICROS),
    StartTool: (Limit.CALLS,),
}
_A_CALL = Spent(calls=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitOwner:
    """The owner of limits: a frame with all frames below it, or the run where `frame` is None."""

    frame: str | None
    budget: BudgetLimits
    spent: Spent
    active_at_open: float = 0.0

    def is_owner_of(self, frame: str) -> bool:
        """Say whether the usage of this frame counts here."""
        return self.frame is None or frame == self.frame or frame.startswith(f"{self.frame}.")


# Charging


def charge(now: Continuation, event: events.Event) -> Continuation:
    """Charge the usage in `event`; `now` is the state after it.

    Runs from before budgets keep no accounts, so that their journals still fold to the stored state.
    """
    if now.budget is None:
        return now
    match event:
        case events.ModelReplied():
            tokens = count_tokens(event.usage)
            spent = Spent(
                turns=1, tokens=tokens, micros=event.cost or 0, unpriced=event.cost is None
            )
            return _add(now, event.frame, spent, context=tokens)
        case events.RetryScheduled(call=None) if not event.usage:
            return now
        case (
            events.Compacted(by="model")
            | events.QuestionAnswered()
            | events.AnswerDropped()
            | events.RetryScheduled(call=None)
            | events.MemorySummarised()
        ):
            spent = Spent(
                tokens=count_tokens(event.usage),
                micros=event.cost or 0,
                unpriced=event.cost is None,
            )
            frame = event.frame
            if frame not in now.frames:  # a dropped answer can come after its frame closed
                above = [name for name in now.frames if frame.startswith(f"{name}.")]
                frame = max(above, key=len, default=frame)
            return _add(now, frame, spent)
        case (
            events.ToolReturned()
            | events.ToolFailed()
            | events.OutcomeUnknown()
            | events.RetryScheduled()
        ):
            return _add(now, event.frame, _A_CALL)
        case _:
            return now


def _add(
    now: Continuation, frame: str, spent: Spent, *, context: int | None = None
) -> Continuation:
    """Charge `spent` to the frame, the frames above it and the run. Set the frame's `context` if given."""
    frames, total = dict(now.frames), now.spent + spent
    holder = frames.get(frame) or now.frame(frame)
    while True:
        # Mostly the root has spent as much as its run.
        sum_of_frame = total if holder.spent is now.spent else holder.spent + spent
        last = holder.context if context is None else context
        frames[holder.id] = replace(holder, spent=sum_of_frame, context=last)
        if holder.parent is None:
            return replace(now, frames=frames, spent=total)
        holder, context = now.frame(holder.parent), None


# Reserving


def may_start_effect(now: Continuation, effect: Command, asking: Collection[str]) -> bool:
    """Say whether the limits allow this effect to start beside the running ones.

    `asking` are the frames with a running model call.
    """
    limits = _COUNTED.get(type(effect), ())
    if not limits or not isinstance(effect, CallModel | AnswerInquiry | StartTool):
        return True
    for scope in _list_limit_owners(now, effect.frame):
        used = scope.spent + compute_reserved(now, scope, asking)
        for limit in limits:
            allowed = scope.budget.of(limit)
            if allowed is not None and getattr(used, limit) >= allowed:
                return False
    return True


def compute_reserved(now: Continuation, scope: LimitOwner, asking: Collection[str]) -> Spent:
    """Return the amounts reserved for running effects in a scope."""
    total = NOTHING
    for frame in now.frames.values():
        if scope.is_owner_of(frame.id):
            started = sum(call.state is CallState.STARTED for call in frame.open_calls())
            total += Spent(calls=started)
            if frame.id in asking:
                total += reserve_reply(frame.rates, frame.context)
    return total


def reserve_reply(rates: Rates | None, context: int) -> Spent:
    """Return the amount reserved for the next reply, if the last one left `context` tokens."""
    price = rates.compute_price(input=context, output=REPLY_TOKENS) if rates else 0
    return Spent(turns=1, tokens=context + REPLY_TOKENS, micros=price)


# Exhausted limits


def list_exhausted_limits(
    now: Continuation, effects: Sequence[Command], at: datetime
) -> tuple[ExhaustedLimit, ...]:
    """List the exhausted limits that a planned or waiting effect would need."""
    if not has_limits(now) or now.phase is not Phase.STARTED or is_blocked(now):
        return ()
    needs: list[
        tuple[str, tuple[Limit, ...]]
    ] = []  # each frame with the limits that its next effect needs
    for effect in effects:
        match effect:
            case CallModel():
                needs.append((effect.frame, _ASKING))
            case StartTool():
                needs.append((effect.frame, _STARTING))
            case OpenFrame() if effect.parent is not None:
                needs.append((effect.parent, _OPENING))
            case _:
                pass
    needs += [(wait.frame, _WAITING) for wait in now.retries()]
    limits_by_owner: dict[tuple[str | None, Limit], ExhaustedLimit] = {}
    for frame, limits in needs:
        for scope in _list_limit_owners(now, frame):
            for limit in limits:
                exceeded = _check_limit(now, scope, limit, frame, at)
                if exceeded is not None:
                    limits_by_owner.setdefault((scope.frame, limit), exceeded)
    return tuple(limits_by_owner.values())


def has_limits(now: Continuation) -> bool:
    """Say whether any limit applies. Runs from before budgets have none."""
    if now.budget is None:
        return False
    for frame in now.frames.values():
        if frame.budget is not None and frame.budget != NO_LIMITS:
            return True
    return now.budget is not NO_LIMITS and now.budget != NO_LIMITS  # mostly the same object


def _check_limit(
    now: Continuation, scope: LimitOwner, limit: Limit, frame: str, at: datetime
) -> ExhaustedLimit | None:
    allowed = scope.budget.of(limit)
    if allowed is None:
        return None
    used: Amount | None
    match limit:
        case Limit.SECONDS:
            used = round(compute_active_seconds(now, at) - scope.active_at_open, 3)
        case Limit.DEPTH:
            above = 0 if scope.frame is None else compute_depth(scope.frame)
            used = compute_depth(frame) - above + 1
        case Limit.MICROS if scope.spent.unpriced or now.frame(frame).rates is None:
            used = None  # a price is not known
        case _:
            used = getattr(scope.spent, limit)
    if used is not None and used < allowed:
        return None
    return ExhaustedLimit(limit=limit, used=used, allowed=allowed, frame=scope.frame)


# Granting


def exceed(now: Continuation, event: events.BudgetExceeded) -> Continuation:
    """Add an exhausted limit to the subject of the gate."""
    _require_started(now, event)
    limit = ExhaustedLimit(
        limit=event.limit, used=event.used, allowed=event.allowed, frame=event.frame
    )
    earlier = now.short.limits if now.short and now.short.gate == event.gate else ()
    return replace(now, short=BudgetGate(gate=event.gate, at=event.at, limits=(*earlier, limit)))


def grant(now: Continuation, event: events.BudgetGranted) -> Continuation:
    """Raise the granted limits of the gate, in every scope where they were exhausted."""
    _require_started(now, event)
    if now.short is None or now.short.gate != event.gate:
        raise UnknownSubject("limit gate", str(event.gate))
    for exhausted_limit in now.short.limits:
        if exhausted_limit.limit not in event.amounts:
            continue
        amount = event.amounts[exhausted_limit.limit]
        if exhausted_limit.frame is not None:
            frame = now.frame(exhausted_limit.frame)
            budget = (frame.budget or BudgetLimits()).add_grant(exhausted_limit.limit, amount)
            now = now.with_frame(replace(frame, budget=budget))
        else:
            budget = (now.budget or BudgetLimits()).add_grant(exhausted_limit.limit, amount)
            now = replace(now, budget=budget)
    return replace(now, short=None)


def _require_started(
    now: Continuation, event: events.BudgetExceeded | events.BudgetGranted
) -> None:
    if now.phase is not Phase.STARTED:
        raise IllegalTransition(type(now.phase).__name__, now.phase, event.type, str(now.run))


# Owners of limits


def _list_limit_owners(now: Continuation, frame: str) -> Iterator[LimitOwner]:
    """Yield every scope with limits that a frame counts for."""
    if now.budget is not None:
        yield LimitOwner(frame=None, budget=now.budget, spent=now.spent)
    holder: Frame | None = now.frame(frame)
    while holder is not None:
        if holder.budget is not None:
            yield LimitOwner(
                frame=holder.id,
                budget=holder.budget,
                spent=holder.spent,
                active_at_open=holder.since,
            )
        holder = None if holder.parent is None else now.frame(holder.parent)


# Active time: the time between entries, minus the time the run only waited for people, times, events, or providers
# whose models do not reply. The time before another attempt counts as active until each model was tried. It is measured
# only if a budget limits it. An entry's own time starts and stops the clock.


def advance_clock(before: Continuation, after: Continuation, at: datetime) -> Continuation:
    """Return `after`, an entry written at `at`, with the active time since `before` added."""
    if before.ticking is None:
        is_limited = after.budget is not None and after.budget.seconds is not None
        for frame in after.frames.values():
            is_limited |= frame.budget is not None and frame.budget.seconds is not None
        if not is_limited:
            return after
    return replace(
        after, worked=compute_active_seconds(after, at), ticking=at if _is_active(after) else None
    )


def compute_active_seconds(now: Continuation, at: datetime) -> float:
    """Return the active seconds until `at`."""
    if now.ticking is None:
        return now.worked
    return now.worked + max(0.0, (at - now.ticking).total_seconds())


def find_exhaustion_time(now: Continuation) -> datetime | None:
    """Return the time at which a waiting retry would exhaust the limit; None if no retry waits or no limit is set."""
    if now.ticking is None:
        return None
    seconds_left = []
    for wait in now.retries():
        if now.budget is not None and now.budget.seconds is not None:
            seconds_left.append(now.budget.seconds - now.worked)
        at: str | None = wait.frame
        while at is not None:
            frame = now.frame(at)
            if frame.budget is not None and frame.budget.seconds is not None:
                seconds_left.append(frame.budget.seconds - (now.worked - frame.since))
            at = frame.parent
    return now.ticking + timedelta(seconds=min(seconds_left)) if seconds_left else None


def is_blocked(now: Continuation) -> bool:
    """Say whether the whole run is blocked, so nothing new starts: paused, or waiting for a grant."""
    return now.paused is not None or any(pending.kind.is_limit for pending in now.pending)


def _is_active(now: Continuation) -> bool:
    """Say whether the run is active: an effect runs, is planned or waits to be retried, and no limit blocks the run."""
    if now.ended or is_blocked(now):
        return False
    if planning.is_under_way(now) or planning.plan(now):
        return True
    for wait in now.retries():
        outage = now.frame(wait.frame).outage if wait.call is None else None
        if outage is None or outage.rounds == 0:
            return True
    return False

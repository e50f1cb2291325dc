"""Keeps the accounts of budgets: amounts are reserved when an effect starts and charged when its outcome arrives.

Running effects are reserved. A started call reserves one call. A model call reserves one turn, the tokens of its
conversation and a long reply, and their price. No effect starts if charged and reserved amounts together exhaust a
limit it needs. So a limit is exceeded by at most one reservation, unless a call uses more than it reserved. If the
charged amounts alone exhaust a limit, the run stops at a limit gate before the next effect that needs it. The usage
of a frame counts for every frame above it and for the run.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from runtime.core.budgets import (
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
    tokens_of,
)
from runtime.core.call_states import CallState
from runtime.core.commands import (
    AnswerInquiry,
    CallModel,
    Command,
    OpenFrame,
    StartTool,
)
from runtime.core.continuation import Continuation, Frame, Phase
from runtime.core.errors import IllegalTransition, UnknownSubject
from runtime.core.events import (
    AnswerDropped,
    BudgetExceeded,
    BudgetGranted,
    Compacted,
    Event,
    MemorySummarised,
    ModelReplied,
    OutcomeUnknown,
    QuestionAnswered,
    RetryScheduled,
    ToolFailed,
    ToolReturned,
)
from runtime.core.fast_replace import replace
from runtime.core.ids import depth_of
from runtime.core.machine.active_time import active_seconds, is_blocked

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

    def contains(self, frame: str) -> bool:
        """Say whether the usage of this frame counts here."""
        return self.frame is None or frame == self.frame or frame.startswith(f"{self.frame}.")


# Charging


def charge(now: Continuation, event: Event) -> Continuation:
    """Charge the usage in `event`; `now` is the state after it.

    Runs from before budgets keep no accounts, so that their journals still fold to the stored state.
    """
    if now.budget is None:
        return now
    match event:
        case ModelReplied():
            tokens = tokens_of(event.usage)
            spent = Spent(
                turns=1, tokens=tokens, micros=event.cost or 0, unpriced=event.cost is None
            )
            return _add(now, event.frame, spent, context=tokens)
        case RetryScheduled(call=None) if not event.usage:
            return now
        case (
            Compacted(by="model")
            | QuestionAnswered()
            | AnswerDropped()
            | RetryScheduled(call=None)
            | MemorySummarised()
        ):
            spent = Spent(
                tokens=tokens_of(event.usage),
                micros=event.cost or 0,
                unpriced=event.cost is None,
            )
            return _add(now, _open_at(now, event.frame), spent)
        case ToolReturned() | ToolFailed() | OutcomeUnknown():
            return _add(now, event.frame, _A_CALL)
        case RetryScheduled():
            return _add(now, event.frame, _A_CALL)
        case _:
            return now


def _open_at(now: Continuation, frame: str) -> str:
    """Return the frame, or the nearest one above it that is there: a dropped answer can come after its frame closed."""
    if frame in now.frames:
        return frame
    return max((one for one in now.frames if frame.startswith(f"{one}.")), key=len, default=frame)


def _add(
    now: Continuation, frame: str, spent: Spent, *, context: int | None = None
) -> Continuation:
    """Charge `spent` to the frame, the frames above it and the run. Set the frame's `context` if given."""
    frames = dict(now.frames)
    for holder in _upwards(now, frame):
        size = holder.context if context is None or holder.id != frame else context
        frames[holder.id] = replace(holder, spent=holder.spent + spent, context=size)
    return replace(now, frames=frames, spent=now.spent + spent)


# Reserving


def fits(now: Continuation, effect: Command, asking: Collection[str]) -> bool:
    """Say whether the limits allow this effect to start beside the running ones.

    `asking` are the frames with a running model call.
    """
    limits = _COUNTED.get(type(effect), ())
    if not limits or not isinstance(effect, CallModel | AnswerInquiry | StartTool):
        return True
    for scope in _scopes(now, effect.frame):
        used = scope.spent + reserved(now, scope, asking)
        for limit in limits:
            allowed = scope.budget.of(limit)
            if allowed is not None and getattr(used, limit) >= allowed:
                return False
    return True


def reserved(now: Continuation, scope: LimitOwner, asking: Collection[str]) -> Spent:
    """Return the amounts reserved for running effects in a scope."""
    total = NOTHING
    for frame in now.frames.values():
        if scope.contains(frame.id):
            started = sum(call.state is CallState.STARTED for call in frame.open_calls())
            total += Spent(calls=started)
            if frame.id in asking:
                total += reply_of(frame.rates, frame.context)
    return total


def reply_of(rates: Rates | None, context: int) -> Spent:
    """Return the amount reserved for the next reply, if the last one left `context` tokens."""
    price = rates.price(input=context, output=REPLY_TOKENS) if rates else 0
    return Spent(turns=1, tokens=context + REPLY_TOKENS, micros=price)


# Exhausted limits


def exhausted(
    now: Continuation, effects: Sequence[Command], at: datetime
) -> tuple[ExhaustedLimit, ...]:
    """List the exhausted limits that a planned or waiting effect would need."""
    if not limited(now) or now.phase is not Phase.STARTED or is_blocked(now):
        return ()
    found: dict[tuple[str | None, Limit], ExhaustedLimit] = {}
    for frame, limits in _needs(now, effects):
        for scope in _scopes(now, frame):
            for limit in limits:
                exceeded = _exhausted(now, scope, limit, frame, at)
                if exceeded is not None:
                    found.setdefault((scope.frame, limit), exceeded)
    return tuple(found.values())


def limited(now: Continuation) -> bool:
    """Say whether any limit applies. Runs from before budgets have none."""
    if now.budget is None:
        return False
    budgets = [now.budget, *[frame.budget for frame in now.frames.values() if frame.budget]]
    return budgets.count(NO_LIMITS) < len(budgets)


def _needs(
    now: Continuation, effects: Sequence[Command]
) -> Iterator[tuple[str, tuple[Limit, ...]]]:
    """Yield each frame that would start an effect, with the limits it needs."""
    for effect in effects:
        match effect:
            case CallModel():
                yield effect.frame, _ASKING
            case StartTool():
                yield effect.frame, _STARTING
            case OpenFrame() if effect.parent is not None:
                yield effect.parent, _OPENING
            case _:
                pass
    for wait in now.retries():
        yield wait.frame, _WAITING


def _exhausted(
    now: Continuation, scope: LimitOwner, limit: Limit, frame: str, at: datetime
) -> ExhaustedLimit | None:
    allowed = scope.budget.of(limit)
    if allowed is None:
        return None
    used = _used(now, scope, limit, frame, at)
    if used is not None and used < allowed:
        return None
    return ExhaustedLimit(limit=limit, used=used, allowed=allowed, frame=scope.frame)


def _used(
    now: Continuation, scope: LimitOwner, limit: Limit, frame: str, at: datetime
) -> Amount | None:
    """Return the usage of a limit; None for money if a price is not known."""
    match limit:
        case Limit.SECONDS:
            return round(active_seconds(now, at) - scope.active_at_open, 3)
        case Limit.DEPTH:
            above = 0 if scope.frame is None else depth_of(scope.frame)
            return depth_of(frame) - above + 1
        case Limit.MICROS if scope.spent.unpriced or now.frame(frame).rates is None:
            return None
        case _:
            used: int = getattr(scope.spent, limit)
            return used


# Granting


def exceed(now: Continuation, event: BudgetExceeded) -> Continuation:
    """Add an exhausted limit to the subject of the gate."""
    _require_started(now, event)
    one = ExhaustedLimit(
        limit=event.limit, used=event.used, allowed=event.allowed, frame=event.frame
    )
    earlier = now.short.limits if now.short and now.short.gate == event.gate else ()
    return replace(now, short=BudgetGate(gate=event.gate, at=event.at, limits=(*earlier, one)))


def grant(now: Continuation, event: BudgetGranted) -> Continuation:
    """Raise the granted limits of the gate, in every scope where they were exhausted."""
    _require_started(now, event)
    if now.short is None or now.short.gate != event.gate:
        raise UnknownSubject("limit gate", str(event.gate))
    for one in now.short.limits:
        if one.limit not in event.amounts:
            continue
        amount = event.amounts[one.limit]
        if one.frame is not None:
            frame = now.frame(one.frame)
            budget = (frame.budget or BudgetLimits()).granted(one.limit, amount)
            now = now.with_frame(replace(frame, budget=budget))
        else:
            budget = (now.budget or BudgetLimits()).granted(one.limit, amount)
            now = replace(now, budget=budget)
    return replace(now, short=None)


def _require_started(now: Continuation, event: BudgetExceeded | BudgetGranted) -> None:
    if now.phase is not Phase.STARTED:
        raise IllegalTransition(type(now.phase).__name__, now.phase, event.type, str(now.run))


# Scopes


def _scopes(now: Continuation, frame: str) -> Iterator[LimitOwner]:
    """Yield every scope with limits that a frame counts for."""
    if now.budget is not None:
        yield LimitOwner(frame=None, budget=now.budget, spent=now.spent)
    for holder in _upwards(now, frame):
        if holder.budget is not None:
            yield LimitOwner(
                frame=holder.id,
                budget=holder.budget,
                spent=holder.spent,
                active_at_open=holder.since,
            )


def _upwards(now: Continuation, frame: str) -> Iterator[Frame]:
    at: str | None = frame
    while at is not None:
        holder = now.frame(at)
        yield holder
        at = holder.parent

"""What follows an attempt that brought no result: another one and when, or the end of trying.

Chance and the time of day come in as arguments. The wait before an attempt is drawn evenly from
zero to a bound that doubles ("full jitter"), unless the other side said how long it wants to be
left alone; no wait is longer than the policy's ceiling.
"""

from datetime import datetime, timedelta

from runtime.core.continuation import Call, Frame
from runtime.core.decisions import EffectClass
from runtime.core.errors import UnknownSubject
from runtime.core.events import (
    MODEL_RETRIES,
    ModelFailed,
    OutcomeUnknown,
    RetryPolicy,
    RetryScheduled,
    Terms,
    ToolFailed,
)


def lost(frame: str, call: Call) -> RetryScheduled | OutcomeUnknown:
    """A started call whose worker died. A death is not the tool's fault and uses up no attempt."""
    error = "the worker that ran it was lost"
    if _terms(call).effect is EffectClass.WRITE:
        return OutcomeUnknown(frame=frame, call=call.id, attempt=call.attempt, error=error)
    return RetryScheduled(
        frame=frame, call=call.id, attempt=call.attempt, cause="lost", error=error
    )


def uncertain(
    frame: str, call: Call, error: str, *, at: datetime, chance: float
) -> RetryScheduled | OutcomeUnknown | ToolFailed:
    """A tool that raised something which does not say what became of the call."""
    if _terms(call).effect is EffectClass.WRITE:
        return OutcomeUnknown(frame=frame, call=call.id, attempt=call.attempt, error=error)
    return undone(frame, call, error, after=None, at=at, chance=chance)


def undone(
    frame: str, call: Call, error: str, *, after: float | None, at: datetime, chance: float
) -> RetryScheduled | ToolFailed:
    """A call that certainly did not happen and may be tried again, whatever its effect class."""
    policy = _terms(call).retry
    if call.failures + 1 >= policy.attempts:
        return ToolFailed(frame=frame, call=call.id, attempt=call.attempt, error=error)
    return RetryScheduled(
        frame=frame,
        call=call.id,
        attempt=call.attempt,
        cause="error",
        error=error,
        until=at + _wait(policy, call.failures, after, chance),
    )


def unanswered(
    frame: Frame, error: str, *, again: bool, after: float | None, at: datetime, chance: float
) -> RetryScheduled | ModelFailed:
    """A model call that brought no reply; `again` says whether trying again can help."""
    if not again or frame.attempt >= MODEL_RETRIES.attempts:
        return ModelFailed(frame=frame.id, error=error)
    return RetryScheduled(
        frame=frame.id,
        call=None,
        attempt=frame.attempt,
        cause="error",
        error=error,
        until=at + _wait(MODEL_RETRIES, frame.attempt - 1, after, chance),
    )


def _wait(policy: RetryPolicy, failures: int, after: float | None, chance: float) -> timedelta:
    """`chance` is in [0, 1). What the other side asks for counts, up to the ceiling."""
    if after is not None:
        return timedelta(seconds=min(max(after, 0.0), policy.ceiling))
    return timedelta(seconds=chance * min(policy.ceiling, policy.base * 2**failures))


def _terms(call: Call) -> Terms:
    if call.terms is None:
        raise UnknownSubject("terms of call", call.id)
    return call.terms

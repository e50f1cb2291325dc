"""What follows an attempt that ended without an outcome, by effect class and cause."""

from typing import Literal, assert_never

from runtime.core.continuation import Call
from runtime.core.decisions import EffectClass
from runtime.core.errors import UnknownSubject
from runtime.core.events import OutcomeUnknown, RetryScheduled, ToolFailed

IDEMPOTENT_ATTEMPTS = 3

Cause = Literal["error", "lost"]


def after_loss(
    frame: str, call: Call, cause: Cause, error: str
) -> RetryScheduled | OutcomeUnknown | ToolFailed:
    """The event for a started call whose worker died (`lost`) or whose tool raised (`error`).

    Deaths do not count against the tool: only errors use up the three attempts of an idempotent call.
    """
    if call.terms is None:
        raise UnknownSubject("terms of call", call.id)
    match call.terms.effect:
        case EffectClass.WRITE:
            return OutcomeUnknown(frame=frame, call=call.id, attempt=call.attempt, error=error)
        case EffectClass.IDEMPOTENT:
            if cause == "error" and call.failures + 1 >= IDEMPOTENT_ATTEMPTS:
                return ToolFailed(frame=frame, call=call.id, attempt=call.attempt, error=error)
            return RetryScheduled(
                frame=frame, call=call.id, attempt=call.attempt, cause=cause, error=error
            )
        case _ as never:
            assert_never(never)

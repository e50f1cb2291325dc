"""Replaces an outcome that no entry can hold: the entry records whether the effect happened, without its result.

A call that has effects has happened, so it counts as returned, without a result. A `read` changed nothing and a
`transactional` call is rolled back: both failed. A model call gave no reply.
"""

from typing import Any

from runtime.core.continuation import Continuation
from runtime.core.documents import codec
from runtime.core.effect_classes import RULES
from runtime.core.errors import NotJson
from runtime.core.events import (
    Compacted,
    Event,
    MemorySummarised,
    ModelFailed,
    ModelReplied,
    RetryScheduled,
    ToolFailed,
    ToolReturned,
)
from runtime.core.limits import plain


def result_lost(why: str) -> dict[str, Any]:
    """Return the substitute for a result that cannot be kept."""
    return {"happened": True, "result": None, "problem": plain(why)}


def journaled(now: Continuation, event: Event) -> Event:
    """Return the event, or its substitute if it cannot be encoded. Raises NotJson if it has no substitute."""
    try:
        codec.require_encodable(event)
    except NotJson as exc:
        return _instead(now, event, exc)
    return event


def _instead(now: Continuation, event: Event, problem: NotJson) -> Event:
    why = plain(f"its outcome cannot be kept: {problem}")
    match event:
        case ToolReturned():
            terms = now.call(event.frame, event.call).terms
            if terms is not None and RULES[terms.effect].happened_when_returned:
                return ToolReturned(
                    frame=event.frame,
                    call=event.call,
                    attempt=event.attempt,
                    result=result_lost(why),
                )
            return ToolFailed(frame=event.frame, call=event.call, attempt=event.attempt, error=why)
        case (
            ModelReplied()
            | ModelFailed()
            | Compacted()
            | MemorySummarised()
            | RetryScheduled(call=None)
        ):
            return ModelFailed(frame=event.frame, error=why)
        case _:
            raise problem

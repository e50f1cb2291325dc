"""What is journaled of an outcome that no journal takes: whether the effect happened is kept, what it brought is not.

A call of a tool that changes something has happened, so it has returned, without its result. A `read`
changed nothing and a `transactional` one is rolled back: they failed. A model that was asked gave no reply.
"""

from typing import Any

from runtime.core.continuation import Continuation
from runtime.core.documents import codec
from runtime.core.effect_classes import RULES
from runtime.core.errors import NotJson
from runtime.core.events import (
    Compacted,
    Event,
    ModelFailed,
    ModelReplied,
    RetryScheduled,
    ToolFailed,
    ToolReturned,
)
from runtime.core.limits import plain


def result_lost(why: str) -> dict[str, Any]:
    """What a call returns that has happened and whose result cannot be kept."""
    return {"happened": True, "result": None, "problem": plain(why)}


def journaled(now: Continuation, event: Event) -> Event:
    """The event, or what takes its place if it cannot be encoded. Raises NotJson for one that nothing can replace."""
    try:
        codec.require_encodable(event)
    except NotJson as exc:
        return _instead(now, event, exc)
    return event


def _instead(now: Continuation, event: Event, problem: NotJson) -> Event:
    why = plain(f"what came of it cannot be kept: {problem}")
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
        case ModelReplied() | ModelFailed() | Compacted() | RetryScheduled(call=None):
            return ModelFailed(frame=event.frame, error=why)
        case _:
            raise problem

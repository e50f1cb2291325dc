"""The two calls of the effect handler's port: a tool is performed, a model call is begun.

What comes back is an outcome in any case, and one that a journal takes.
"""

import logging
import queue
from collections.abc import Callable

from runtime.core.errors import NotJson
from runtime.core.ids import depth_of
from runtime.core.limits import plain
from runtime.core.unkept import has_happened, result_lost
from runtime.execution.effects.validation import taken_in
from runtime.ports import (
    Abort,
    EffectHandler,
    ModelAnswer,
    ModelFault,
    ModelRequest,
    Outcome,
    ToolFault,
    ToolRequest,
    ToolResult,
    Unknown,
)
from runtime.store import failpoints

log = logging.getLogger(__name__)


def perform(handler: EffectHandler, request: ModelRequest | ToolRequest) -> Outcome:
    """Perform an effect and wait for its outcome, which is never an exception."""
    if isinstance(request, ModelRequest):
        came: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        begin(handler, request, came.put)
        return came.get()
    failpoints.pass_by("starting", request.effect, depth_of(request.frame))
    try:
        outcome = handler.perform(request)
    except Exception as exc:
        log.exception("the effect handler raised on %s", request)
        return Unknown(error=plain(f"{type(exc).__name__}: {exc}"))
    outcome = _taken_in(request, outcome)
    failpoints.pass_by("performed", request.effect, depth_of(request.frame))
    return outcome


def begin(
    handler: EffectHandler, request: ModelRequest, deliver: Callable[[Outcome], object]
) -> Abort:
    """Have the model asked; the outcome is delivered from a thread that must not be kept."""

    def came(outcome: Outcome) -> None:
        outcome = _taken_in(request, outcome)
        failpoints.pass_by("performed", "model", depth_of(request.frame))
        deliver(outcome)

    failpoints.pass_by("starting", "model", depth_of(request.frame))
    try:
        return handler.begin(request, came)
    except Exception as exc:
        log.exception("the effect handler raised on the model call of %s", request.run)
        deliver(ModelFault(error=plain(f"{type(exc).__name__}: {exc}")))
        return nothing_to_end


def nothing_to_end() -> None:
    """How to end early what cannot be ended, or has ended."""


def _taken_in(request: ModelRequest | ToolRequest, outcome: Outcome) -> Outcome:
    """The outcome, or what can be kept of one that no journal takes."""
    try:
        return taken_in(outcome)
    except NotJson as exc:
        problem = f"what it returned cannot be kept: {exc}"
        if isinstance(outcome, ModelAnswer):
            return ModelFault(error=problem)
        if isinstance(request, ToolRequest) and has_happened(request.effect):
            return ToolResult(value=result_lost(problem))
        return ToolFault(error=problem)

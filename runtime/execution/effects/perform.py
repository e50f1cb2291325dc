"""Calls the effect handler: performs a tool call, or starts a model call.

Each ends with an outcome that the journal accepts, never with an exception.
"""

import logging
import queue
from collections.abc import Callable

from runtime.core.documents.lost_results import result_lost
from runtime.core.effect_classes import RULES
from runtime.core.enums import FailureCause
from runtime.core.errors import NotJson
from runtime.core.ids import depth_of
from runtime.core.limits import plain
from runtime.execution.effects.running import no_abort
from runtime.execution.effects.validation import validate_outcome
from runtime.ports.effects import (
    Abort,
    EffectHandler,
    Keep,
    ModelAnswer,
    ModelFailure,
    ModelRequest,
    Outcome,
    PreviewRequest,
    ToolFailure,
    ToolRequest,
    ToolResult,
    Unknown,
)
from runtime.store import failpoints

log = logging.getLogger(__name__)


def perform(
    handler: EffectHandler, request: ModelRequest | PreviewRequest | ToolRequest
) -> Outcome:
    """Perform an effect and wait for its outcome."""
    if isinstance(request, ModelRequest):
        came: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        start_model_call(handler, request, came.put)
        return came.get()
    if isinstance(request, PreviewRequest):
        return _preview(handler, request)
    failpoints.hit("starting", request.effect, depth_of(request.frame))
    try:
        outcome = handler.perform(request)
    except Exception as exc:
        log.exception("Effect handler raised an error for %s", request)
        return Unknown(error=plain(f"{type(exc).__name__}: {exc}"))
    outcome = _valid(handler, request, outcome)
    failpoints.hit("performed", request.effect, depth_of(request.frame))
    return outcome


def _preview(handler: EffectHandler, request: PreviewRequest) -> Outcome:
    failpoints.hit("starting", "preview", depth_of(request.frame))
    try:
        preview = handler.preview(request)
    except Exception as exc:
        log.exception("Effect handler raised an error for the preview of %s", request.key)
        return Unknown(error=plain(f"{type(exc).__name__}: {exc}"))
    failpoints.hit("performed", "preview", depth_of(request.frame))
    return ToolResult(value=preview)


def start_model_call(
    handler: EffectHandler,
    request: ModelRequest,
    deliver: Callable[[Outcome], object],
    keep: Keep | None = None,
) -> Abort:
    """Start a model call. The handler delivers the outcome from a thread of its own, which must not be blocked."""

    def came(outcome: Outcome) -> None:
        outcome = _valid(handler, request, outcome)
        failpoints.hit("performed", "model", depth_of(request.frame))
        deliver(outcome)

    failpoints.hit("starting", "model", depth_of(request.frame))
    try:
        return handler.start_model_call(request, came, keep)
    except Exception as exc:
        log.exception("Run %s: effect handler raised an error for a model call", request.run)
        deliver(ModelFailure(error=plain(f"{type(exc).__name__}: {exc}")))
        return no_abort


def _valid(
    handler: EffectHandler, request: ModelRequest | ToolRequest, outcome: Outcome
) -> Outcome:
    """Return the outcome, or a valid one in place of one that cannot be journaled."""
    try:
        return validate_outcome(outcome)
    except NotJson as exc:
        problem = f"its result cannot be kept: {exc}"
        if isinstance(outcome, ModelAnswer):
            return _unusable(handler, request, outcome, problem)
        if isinstance(request, ToolRequest) and RULES[request.effect].happened_when_returned:
            return ToolResult(value=result_lost(problem))
        return ToolFailure(error=problem)


def _unusable(
    handler: EffectHandler, request: ModelRequest | ToolRequest, answer: ModelAnswer, problem: str
) -> ModelFailure:
    """Return the failure of a reply that cannot be kept. A script, and a person's reply, would be the same again."""
    if isinstance(request, ToolRequest) or request.given or handler.is_scripted(request.agent):
        return ModelFailure(error=problem)
    return ModelFailure(
        error=problem,
        retryable=True,
        cause=FailureCause.REPLY,
        model=answer.model,
        fallback=answer.fallback,
        usage=answer.usage,
        cost=answer.cost,
    )

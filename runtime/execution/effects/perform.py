"""Makes the requests for planned work, and calls the effect handler: performs a tool call, or starts a model call.

Each ends with an outcome that the journal accepts, never with an exception: values over a limit are refused, and error
texts are cleaned.
"""

import logging
import queue
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import assert_never
from uuid import UUID

from runtime.core.documents.blobs import InlinedMessages
from runtime.core.documents.codec import make_lost_result
from runtime.core.run.continuation import Call, Continuation, Frame
from runtime.core.run.frames import cut_point, list_undelivered, needs_memory_summary
from runtime.core.run.gates import open_inquiry, with_inquiry
from runtime.core.run.planning import AnswerInquiry, CallModel, StartTool
from runtime.core.values.call_options import CallOptions
from runtime.core.values.enums import EFFECT_CLASSES, FailureCause
from runtime.core.values.errors import NotJson
from runtime.core.values.ids import compute_depth
from runtime.core.values.json_values import copy_value, measure_size, require_json
from runtime.core.values.limits import MAX_CALLS, MAX_ITEMS, MAX_REPLY, MAX_RESULT, MAX_TOOL
from runtime.core.values.texts import clean_text
from runtime.execution.effects.running import no_abort
from runtime.ports.approvals import VerifiedApproval
from runtime.ports.effects import (
    PREVIEW_AGAIN_SECONDS,
    PREVIEW_SECONDS,
    Abort,
    EffectHandler,
    Keep,
    ModelAnswer,
    ModelFailure,
    ModelRequest,
    Outcome,
    PreviewRequest,
    RateLimited,
    ToolFailure,
    ToolRequest,
    ToolResult,
    Unknown,
)
from runtime.store import failpoints
from runtime.store.steps import PreviewCall

log = logging.getLogger(__name__)

_NO_APPROVAL = VerifiedApproval()


def perform(
    handler: EffectHandler, request: ModelRequest | PreviewRequest | ToolRequest
) -> Outcome:
    """Perform an effect and wait for its outcome."""
    if isinstance(request, ModelRequest):
        came: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        start_model_call(handler, request, came.put)
        return came.get()
    is_preview, depth = isinstance(request, PreviewRequest), compute_depth(request.frame)
    kind = "preview" if is_preview else request.effect
    failpoints.hit("starting", kind, depth)
    try:
        if isinstance(request, PreviewRequest):
            outcome: Outcome = ToolResult(value=handler.preview(request))
        else:
            outcome = handler.perform(request)
    except Exception as exc:
        subject = f"the preview of {request.key}" if is_preview else request
        log.exception("Effect handler raised an error for %s", subject)
        return Unknown(error=clean_text(f"{type(exc).__name__}: {exc}"))
    if isinstance(request, ToolRequest):
        outcome = _ensure_valid_outcome(handler, request, outcome)
    failpoints.hit("performed", kind, depth)
    return outcome


def start_model_call(
    handler: EffectHandler,
    request: ModelRequest,
    deliver: Callable[[Outcome], object],
    keep: Keep | None = None,
) -> Abort:
    """Start a model call. The handler delivers the outcome from a thread of its own, which must not be blocked."""
    depth = compute_depth(request.frame)

    def came(outcome: Outcome) -> None:
        outcome = _ensure_valid_outcome(handler, request, outcome)
        failpoints.hit("performed", "model", depth)
        deliver(outcome)

    failpoints.hit("starting", "model", depth)
    try:
        return handler.start_model_call(request, came, keep)
    except Exception as exc:
        log.exception("Run %s: effect handler raised an error for a model call", request.run)
        deliver(ModelFailure(error=clean_text(f"{type(exc).__name__}: {exc}")))
        return no_abort


def validate_outcome(outcome: Outcome) -> Outcome:
    """Return the outcome as it is journaled. Raises NotJson with the field and the limit."""
    match outcome:
        case ModelAnswer():
            limit = MAX_ITEMS if outcome.at_once else MAX_CALLS
            if len(outcome.calls) > limit:
                problem = f"{len(outcome.calls)} in one reply, at most {limit} are taken"
                raise NotJson("calls", problem)
            _check_parts(outcome)
            return outcome
        case ToolResult():
            _require(outcome.value, "result", MAX_RESULT)
            return replace(outcome, value=copy_value(outcome.value))  # the tool may change its own
        case ModelFailure():
            return replace(
                outcome,
                error=clean_text(outcome.error),
                partial=clean_text(outcome.partial),
                provider_text=clean_text(outcome.provider_text),
            )
        case ToolFailure() | Unknown():
            return replace(outcome, error=clean_text(outcome.error))
        case RateLimited():
            return outcome
        case _ as never:
            assert_never(never)


def build_request(
    now: Continuation,
    work: CallModel | AnswerInquiry | PreviewCall | StartTool,
    filled: InlinedMessages,
    approved: Mapping[UUID, VerifiedApproval],
) -> ModelRequest | PreviewRequest | ToolRequest:
    """Return the request for planned work.

    `filled` has the results that are stored by their hash, `approved` the verified approvals of calls, by gate.
    """
    frame = now.frames[work.frame]
    if isinstance(work, CallModel):
        unheard = () if work.summary else list_undelivered(now, frame.id)
        recalls = work.summary and needs_memory_summary(now, frame)
        until = cut_point(frame) if work.summary and not recalls else None
        messages = filled.inline_messages(frame, now.memory)[:until]
        return ModelRequest(
            run=now.run,
            frame=frame.id,
            agent=frame.agent,
            messages=messages + unheard,
            deadline=frame.terms.deadline,
            model=frame.model,
            queue_number=frame.ticket,
            summary=work.summary,
            memory_tokens=now.memory_tokens if recalls else 0,
            unheard=len(unheard),
            instructions=frame.instructions,
            calls=frame.calls,
            todo=() if work.summary else frame.todo,
            cut=None if work.summary else frame.cut,
            fork_reply=None if work.summary else frame.given,
        )
    if isinstance(work, AnswerInquiry):
        inquiry = open_inquiry(now, work.inquiry)
        assert inquiry is not None  # an inquiry that ended is withdrawn before
        return ModelRequest(
            run=now.run,
            frame=frame.id,
            agent=frame.agent,
            messages=filled.inline_messages(with_inquiry(frame, inquiry), now.memory),
            deadline=frame.terms.deadline,
            instructions=frame.instructions,
            calls=frame.calls,
            inquiry=inquiry.id,
        )
    call = frame.find(work.call)
    if isinstance(work, PreviewCall):
        request = _build_tool_request(now, frame, call, work.terms, call.attempt + 1, _NO_APPROVAL)
        is_approved = call.shown is not None
        seconds = PREVIEW_AGAIN_SECONDS if is_approved else PREVIEW_SECONDS
        return PreviewRequest(of=request, digest=work.terms.digest, deadline=seconds)
    assert call.terms is not None  # a call is checked before it is started
    approval = _NO_APPROVAL if call.gate is None else approved.get(call.gate, _NO_APPROVAL)
    return _build_tool_request(now, frame, call, call.terms, work.attempt, approval)


def _ensure_valid_outcome(
    handler: EffectHandler, request: ModelRequest | ToolRequest, outcome: Outcome
) -> Outcome:
    """Return the outcome, or a valid one in place of one that cannot be journaled."""
    try:
        return validate_outcome(outcome)
    except NotJson as exc:
        problem = f"its result cannot be kept: {exc}"
        if isinstance(outcome, ModelAnswer):
            # A script, and a person's reply, would be the same again.
            if (
                isinstance(request, ToolRequest)
                or request.fork_reply
                or handler.is_scripted(request.agent)
            ):
                return ModelFailure(error=problem)
            return ModelFailure(
                error=problem,
                retryable=True,
                cause=FailureCause.REPLY,
                model=outcome.model,
                fallback=outcome.fallback,
                usage=outcome.usage,
                cost=outcome.cost,
            )
        if (
            isinstance(request, ToolRequest)
            and EFFECT_CLASSES[request.effect].happened_when_returned
        ):
            return ToolResult(value=make_lost_result(problem))
        return ToolFailure(error=problem)


def _check_parts(answer: ModelAnswer) -> None:
    """Raise NotJson with the part of an answer that exceeds a limit: a provider's client may have added to it.

    If all parts together are within the limits of one part, each of them is.
    """
    calls = [[proposal.tool, proposal.args] for proposal in answer.calls]
    parts = [answer.reply, answer.text, answer.usage, answer.output, calls]
    try:
        require_json(parts)
        has_long_names = [tool for tool, _ in calls if len(tool) > MAX_TOOL]
        if measure_size(parts) <= MAX_REPLY and not has_long_names:
            return
    except NotJson:
        pass  # one of the parts has the fault, which is named below
    for index, proposal in enumerate(answer.calls):
        require_json(proposal.tool, f"calls[{index}].tool")
        if len(proposal.tool) > MAX_TOOL:
            raise NotJson(f"calls[{index}].tool", f"at most {MAX_TOOL} characters are taken")
        require_json(proposal.args, f"calls[{index}].args")
    for name in ("reply", "text", "usage", "output"):
        if (fact := getattr(answer, name)) is not None:
            _require(fact, name, MAX_REPLY)
    if sum(measure_size(proposal.args) for proposal in answer.calls) > MAX_REPLY:
        raise NotJson("args", f"more than {MAX_REPLY} bytes of JSON in one reply")


def _require(value: object, field: str, limit: int) -> None:
    require_json(value, field)
    size = measure_size(value)
    if size > limit:
        raise NotJson(field, f"is {size} bytes of JSON, at most {limit} are taken")


def _build_tool_request(
    now: Continuation,
    frame: Frame,
    call: Call,
    terms: CallOptions,
    attempt: int,
    approval: VerifiedApproval,
) -> ToolRequest:
    return ToolRequest(
        run=now.run,
        frame=frame.id,
        call=call.id,
        attempt=attempt,
        agent=frame.agent,
        tool=call.tool,
        args=call.args,
        key=make_idempotency_key(now.run, frame.id, call.id),
        deadline=terms.deadline,
        effect=terms.effect,
        requester=now.requester,
        business_key=now.business_key,
        input=frame.messages[0]["content"] if frame.messages else None,
        todo=frame.todo if terms.plan else (),
        approvers=approval.by,
        comment=approval.comment,
    )


def make_idempotency_key(run: UUID, frame: str, call: str) -> str:
    """Return the same key for every attempt at a call. Tools pass it to the system they write to."""
    return f"{run}/{frame}/{call}"

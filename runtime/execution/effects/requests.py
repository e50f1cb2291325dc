"""Converts the state of a run to the requests for its planned work. Does no I/O."""

from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

from runtime.core.call_options import CallOptions
from runtime.core.commands import AnswerInquiry, CallModel, StartTool
from runtime.core.continuation import Call, Continuation, Frame
from runtime.core.documents.blobs import InlinedMessages
from runtime.core.ids import idempotency_key
from runtime.core.machine.calls.inquiries import conversation, open_inquiry
from runtime.core.machine.compaction import cut_point, memory_is_due
from runtime.core.machine.messages import undelivered_to
from runtime.ports.approvals import VerifiedApproval
from runtime.ports.effects import (
    PREVIEW_AGAIN_SECONDS,
    PREVIEW_SECONDS,
    ModelRequest,
    PreviewRequest,
    ToolRequest,
)
from runtime.store.records import PreviewCall

_NO_APPROVAL = VerifiedApproval()


def request_for(
    now: Continuation,
    work: CallModel | AnswerInquiry | PreviewCall | StartTool,
    filled: InlinedMessages,
    approved: Mapping[UUID, VerifiedApproval],
) -> ModelRequest | PreviewRequest | ToolRequest:
    """Return the request for planned work.

    `filled` has the results that are stored by their hash, `approved` the verified approvals of calls, by gate.
    """
    frame = now.frame(work.frame)
    if isinstance(work, CallModel):
        unheard = () if work.summary else undelivered_to(now, frame.id)
        recalls = work.summary and memory_is_due(now, frame)
        until = cut_point(frame) if work.summary and not recalls else None
        messages = filled.messages(frame, now.memory)[:until]
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
            given=None if work.summary else frame.given,
        )
    if isinstance(work, AnswerInquiry):
        return _inquiry_request(now, frame, work, filled)
    call = frame.find(work.call)
    if isinstance(work, PreviewCall):
        of = _tool_request(now, frame, call, work.terms, call.attempt + 1)
        is_approved = call.shown is not None
        seconds = PREVIEW_AGAIN_SECONDS if is_approved else PREVIEW_SECONDS
        return PreviewRequest(of=of, digest=work.terms.digest, deadline=seconds)
    assert call.terms is not None  # a call is checked before it is started
    approval = _NO_APPROVAL if call.gate is None else approved.get(call.gate, _NO_APPROVAL)
    request = _tool_request(now, frame, call, call.terms, work.attempt)
    return replace(request, approvers=approval.by, comment=approval.comment)


def _inquiry_request(
    now: Continuation, frame: Frame, work: AnswerInquiry, filled: InlinedMessages
) -> ModelRequest:
    inquiry = open_inquiry(now, work.inquiry)
    assert inquiry is not None  # an inquiry that ended is withdrawn before
    return ModelRequest(
        run=now.run,
        frame=frame.id,
        agent=frame.agent,
        messages=filled.messages(conversation(frame, inquiry), now.memory),
        deadline=frame.terms.deadline,
        instructions=frame.instructions,
        calls=frame.calls,
        inquiry=inquiry.id,
    )


def _tool_request(
    now: Continuation, frame: Frame, call: Call, terms: CallOptions, attempt: int
) -> ToolRequest:
    return ToolRequest(
        run=now.run,
        frame=frame.id,
        call=call.id,
        attempt=attempt,
        agent=frame.agent,
        tool=call.tool,
        args=call.args,
        key=idempotency_key(now.run, frame.id, call.id),
        deadline=terms.deadline,
        effect=terms.effect,
        requester=now.requester,
        business_key=now.business_key,
        input=frame.messages[0]["content"] if frame.messages else None,
        todo=frame.todo if terms.plan else (),
    )

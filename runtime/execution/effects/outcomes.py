"""Converts outcomes to events. Does no I/O."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypedDict, assert_never
from uuid import UUID

from django.conf import settings

from runtime.core.documents import blobs
from runtime.core.run.continuation import Continuation, Frame, FrameState, Phase
from runtime.core.run.events import (
    AnswerDropped,
    CallPreviewed,
    Compacted,
    Event,
    MemorySummarised,
    ModelFailed,
    ModelReplied,
    OutcomeArrived,
    Proposal,
    QuestionAnswered,
    QuestionFailed,
    RetryScheduled,
    ToolFailed,
    ToolReturned,
)
from runtime.core.run.frames import cut_point
from runtime.core.run.gates import open_inquiry
from runtime.core.run.planning import StartTool
from runtime.core.run.retries import on_cut, on_no_reply, on_not_performed, on_unknown
from runtime.core.values.enums import EFFECT_CLASSES, CallPreview, FailureCause
from runtime.core.values.json_values import copy_value
from runtime.core.values.limits import MAX_ANSWER, MAX_SUMMARY
from runtime.ports.effects import (
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
from runtime.store.tables.late_outcomes import LateOutcomeRow
from runtime.store.tables.partial_replies import PartialReplyRow


class _Charges(TypedDict):
    usage: dict[str, int]
    model: str
    cost: int | None


# Why a call does not start although its intent is written
CANCELLED = "the run was cancelled before this call was started"
DECIDED = "its question was about a call that is decided"
RELEASED = "the worker released the run before the call started"
STALE = "it could not start in time, because Postgres was unreachable"


def build_event(
    now: Continuation,
    request: ModelRequest | PreviewRequest | ToolRequest,
    outcome: Outcome,
    *,
    at: datetime,
    jitter: float,
    is_cut: bool = False,
) -> Event:
    """Return the event to journal for an outcome; `jitter` in [0, 1) spreads the retries.

    `is_cut` says that a person's message ended the model call. A complete reply that was faster is kept.
    """
    if isinstance(request, ToolRequest):
        return _build_tool_event(now, request, outcome, at, jitter)
    if isinstance(request, PreviewRequest):
        return CallPreviewed(
            frame=request.frame,
            call=request.call,
            preview=replace(read_preview(outcome), at=at, digest=request.digest),
        )
    if is_cut and isinstance(outcome, ModelFailure):
        frame, tokens = now.frame(request.frame), outcome.tokens
        partial, charges = outcome.partial, _collect_charges(outcome)
        return on_cut(frame, "message", at=at, partial=partial, tokens=tokens, **charges)
    return _build_model_event(now, request, outcome, at, jitter)


def read_preview(outcome: Outcome) -> CallPreview:
    """Return the preview, or the reason why there is none."""
    if isinstance(outcome, ToolResult):
        preview: CallPreview = outcome.value
        return preview
    return CallPreview(missing=getattr(outcome, "error", "") or "it has no result")


def _build_model_event(
    now: Continuation, request: ModelRequest, outcome: Outcome, at: datetime, jitter: float
) -> Event:
    frame = now.frames[request.frame]
    if request.inquiry is not None:
        return _build_answer_event(now, request.inquiry, outcome)
    match outcome:
        case ModelAnswer() if request.memory_tokens or request.summary:
            return _build_summary_event(request, frame, outcome, at)
        case ModelAnswer():
            return ModelReplied(
                frame=request.frame,
                reply=outcome.reply,
                text=outcome.text,
                # A script may change its own later.
                calls=tuple(
                    [Proposal(tool=call.tool, args=copy_value(call.args)) for call in outcome.calls]
                ),
                output=copy_value(outcome.output),
                output_kept=outcome.output_kept,
                at_once=outcome.at_once,
                usage=outcome.usage,
                model=outcome.model,
                cost=outcome.cost,
                heard=request.unheard,
                given_by=request.fork_reply.by if request.fork_reply else "",
            )
        case ModelFailure():
            return on_no_reply(
                frame,
                outcome.error,
                retryable=outcome.retryable,
                retry_after=outcome.retry_after,
                at=at,
                jitter=jitter,
                cause=outcome.cause,
                model=outcome.model,
                fallback=outcome.fallback,
                partial=outcome.partial,
                provider_text=outcome.provider_text,
                tokens=0 if request.summary else outcome.tokens,
                usage=outcome.usage,
                cost=outcome.cost,
                timeout=timedelta(seconds=settings.SIGNOFF_OUTAGE_SECONDS),
            )
        case RateLimited():
            return RetryScheduled(
                frame=frame.id,
                call=None,
                attempt=frame.attempt,
                cause="brake",
                error=f"{outcome.model} was not asked: its provider wants fewer requests",
                until=outcome.until,
                model=outcome.model,
                ticket=outcome.queue_number,
                since=frame.outage.since if frame.outage else at,
                limited=True,
            )
        case Unknown() | ToolFailure():
            return ModelFailed(frame=request.frame, error=outcome.error)
        case ToolResult():
            return ModelFailed(frame=request.frame, error="a tool's result instead of a reply")
        case _ as never:
            assert_never(never)


def build_lost_reply_event(
    now: Continuation, kept_part: PartialReplyRow, at: datetime
) -> RetryScheduled | None:
    """Return the event for a reply that was lost with its worker; None if the call is over."""
    frame = now.frames.get(kept_part.frame) if now.phase is Phase.STARTED else None
    if frame is None or frame.state is not FrameState.ASKING:
        return None
    if (kept_part.turn, kept_part.attempt) != (frame.turn, frame.attempt):
        return None
    text, tokens, charges = kept_part.text, kept_part.tokens, _collect_charges(kept_part)
    return on_cut(frame, "lost", at=at, partial=text, tokens=tokens, **charges)


def _build_answer_event(
    now: Continuation, inquiry: UUID, outcome: Outcome
) -> QuestionAnswered | QuestionFailed:
    """Return the answer to an inquiry that is still open, or why there is none. The worker does not ask again."""
    of = open_inquiry(now, inquiry)
    assert of is not None  # the runner drops other answers
    if isinstance(outcome, ModelAnswer) and (text := outcome.text.strip()):
        return QuestionAnswered(
            frame=of.frame,
            call=of.call,
            question=inquiry,
            text=text if len(text) <= MAX_ANSWER else f"{text[: MAX_ANSWER - 1]}…",
            **_collect_charges(outcome),
        )
    match outcome:
        case ModelAnswer():
            error = "the model gave no answer in text"
        case RateLimited():
            error = f"{outcome.model} was not asked: its provider wants fewer requests"
        case ToolResult():
            error = "a tool's result instead of a reply"
        case _:
            error = outcome.error
    return QuestionFailed(frame=of.frame, call=of.call, question=inquiry, error=error)


def build_answer_dropped(request: ModelRequest, outcome: Outcome) -> AnswerDropped | None:
    """Return the event that charges an answer which its inquiry does not get; None if nothing was paid for."""
    if request.inquiry is None or not isinstance(outcome, ModelAnswer | ModelFailure):
        return None
    if isinstance(outcome, ModelFailure) and not outcome.usage:
        return None
    return AnswerDropped(frame=request.frame, question=request.inquiry, **_collect_charges(outcome))


def _build_summary_event(
    request: ModelRequest, frame: Frame, answer: ModelAnswer, at: datetime
) -> MemorySummarised | Compacted | ModelFailed:
    """Return the summary in place of what the run remembers, or of the earlier messages of a frame.

    Without one the run fails, as without a reply: it could only grow.
    """
    characters = len(answer.text)
    if not answer.text.strip() or characters > MAX_SUMMARY:
        subject = "the summary of the memory" if request.memory_tokens else "the summary"
        error = f"{subject} has {characters} characters, from 1 to {MAX_SUMMARY} are taken"
        return ModelFailed(frame=frame.id, error=error)
    if request.memory_tokens:
        return MemorySummarised(
            frame=frame.id,
            at=at,
            text=blobs.encode_memory(request.run, "summary", answer.text),
            **_collect_charges(answer),
        )
    return Compacted(
        frame=frame.id,
        until=cut_point(frame),
        summary=answer.text,
        by=frame.compaction.by if frame.compaction else "model",
        **_collect_charges(answer),
    )


def _collect_charges(reply: ModelAnswer | ModelFailure | PartialReplyRow) -> _Charges:
    """Return what a reply, or a part of one, cost: fields of its event."""
    return {"usage": reply.usage, "model": reply.model, "cost": reply.cost}


def _build_tool_event(
    now: Continuation, request: ToolRequest, outcome: Outcome, at: datetime, jitter: float
) -> Event:
    frame, call = request.frame, now.call(request.frame, request.call)
    match outcome:
        case ToolResult():
            return ToolReturned(
                frame=frame,
                call=call.id,
                attempt=request.attempt,
                result=outcome.value,
                answer=call.terms is not None and call.terms.answers,
            )
        case ToolFailure() if outcome.credential:
            return RetryScheduled(
                frame=frame,
                call=call.id,
                attempt=request.attempt,
                cause="credential",
                error=outcome.credential,
            )
        case ToolFailure() if outcome.retryable:
            return on_not_performed(
                frame,
                call,
                outcome.error,
                retry_after=outcome.retry_after,
                at=at,
                jitter=jitter,
                cause=outcome.cause,
            )
        case ToolFailure():
            return ToolFailed(
                frame=frame, call=call.id, attempt=request.attempt, error=outcome.error
            )
        case Unknown() | ModelFailure():
            return on_unknown(frame, call, outcome.error, at=at, jitter=jitter, cause=outcome.cause)
        case ModelAnswer() | RateLimited():
            error = "a model's reply instead of a result"
            return on_unknown(frame, call, error, at=at, jitter=jitter)
        case _ as never:
            assert_never(never)


def not_started(work: StartTool, reason: str) -> ToolFailed | RetryScheduled:
    """Return the event for a call whose intent is written but that does not start: a failure, or a retry."""
    if reason == CANCELLED:
        return ToolFailed(frame=work.frame, call=work.call, attempt=work.attempt, error=reason)
    return RetryScheduled(
        frame=work.frame, call=work.call, attempt=work.attempt, cause="lost", error=reason
    )


def make_timeout_outcome(request: ModelRequest | PreviewRequest | ToolRequest) -> Outcome:
    """Return the outcome of an effect that has not ended at its deadline."""
    if isinstance(request, PreviewRequest):
        return Unknown(error=f"it took longer than {request.deadline:g} s")
    error = f"it did not end within {request.deadline:g} s"
    if isinstance(request, ModelRequest):
        return ModelFailure(error=error, retryable=True, cause=FailureCause.TIME)
    late = Unknown(error=error, cause=FailureCause.TIME)
    if EFFECT_CLASSES[request.effect].commits_with_entry:
        return mark_rolled_back(replace(late, error=f"{error}, and was rolled back"))
    return late


def mark_rolled_back(outcome: Outcome) -> Outcome:
    """Return the outcome of a transactional call: every outcome but a result is rolled back, so none is unknown."""
    if isinstance(outcome, Unknown):
        return ToolFailure(error=outcome.error, retryable=True, cause=outcome.cause)
    return outcome


def build_arrival_event(late: LateOutcomeRow, gate: UUID | None) -> OutcomeArrived:
    """Return the event that records a late outcome."""
    return OutcomeArrived(
        frame=late.frame,
        call=late.call,
        attempt=late.attempt,
        gate=gate,
        outcome=late.outcome,
        at=late.at,
        result=late.result,
        error=late.error,
    )

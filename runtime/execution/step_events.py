"""Makes the events of a step: of frames, runs, waits, inquiries and limits."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from runtime.core.documents import external_call
from runtime.core.run.continuation import Call, Continuation, FrameState, Phase
from runtime.core.run.events import (
    BudgetExceeded,
    Cancelled,
    Completed,
    Failed,
    OutcomeUnknown,
    QuestionAsked,
    WaitEnded,
    WaitStarted,
)
from runtime.core.run.planning import StartWait
from runtime.core.values.budgets import ExhaustedLimit, describe_exhaustion, name_limit, to_text
from runtime.core.values.enums import GateKind
from runtime.core.values.ids import ROOT
from runtime.core.values.json_values import measure_size
from runtime.core.values.limits import MAX_EVENT_NAME, MAX_MATCH, MAX_WAIT_DAYS
from runtime.core.values.texts import clean_text
from runtime.errors import InvalidInput
from runtime.execution.admission.gates import AdmissionResult, open_frame_gate
from runtime.store.steps import is_waiting
from runtime.store.tables.signals import EventSignal, InquirySignal


def end_run(now: Continuation) -> Completed | Failed | Cancelled:
    """Return the event that ends the run: with the answer of its root, or without."""
    if now.phase is Phase.CANCELLING:
        reason = now.outcome or ""
        return Cancelled(reason=reason) if now.cancelled_by else Failed(error=reason)
    root = now.frame(ROOT)
    if root.state is FrameState.ANSWERED:
        return Completed(output="" if root.outcome is None else root.outcome)
    return Failed(error=root.outcome or "")


def receive_event(now: Continuation, signal: EventSignal) -> WaitStarted | WaitEnded | None:
    """Return the event that ends a wait with its external event, None if the call no longer waits.

    If the instance that performs the call has used its approval, the call waits for its outcome.
    """
    if now.phase is not Phase.STARTED or not is_waiting(now, signal.frame, signal.call):
        return None
    if signal.used_at is not None:
        until = signal.used_at + OUTCOME_WITHIN
        return WaitStarted(frame=signal.frame, call=signal.call, until=until, at=signal.used_at)
    return WaitEnded(
        frame=signal.frame,
        call=signal.call,
        outcome="refused" if signal.failed else "arrived",
        result=signal.result.get("error", "") if signal.failed else signal.result,
        by=signal.by,
    )


def explain_invalid_input(agent: str, problem: InvalidInput) -> str:
    """Say why an agent cannot take its input."""
    return clean_text(f"{agent} does not take its input: {problem.all_of_it}")


# After this time without a report, a call that its instance has begun is in doubt. A later report still settles it.
OUTCOME_WITHIN = timedelta(hours=1)


class InvalidWait(Exception):
    """The arguments name no time or event that could come; the model sees the error."""


def begin_wait(now: Continuation, effect: StartWait, at: datetime) -> WaitStarted | WaitEnded:
    """Begin the wait of a call at `at`, or refuse it. Its arguments fit its schema."""
    call = now.call(effect.frame, effect.call)
    assert call.terms is not None  # a call is checked before it waits
    try:
        if call.terms.waits == "time":
            until = _read_time(call.args.get("moment"), "moment", at)
            return WaitStarted(frame=effect.frame, call=call.id, until=until)
        if call.terms.waits == "instance":
            until = at + timedelta(seconds=external_call.read_valid_seconds(now.input))
            return WaitStarted(frame=effect.frame, call=call.id, until=until)
        return _begin_event_wait(effect.frame, call, at)
    except InvalidWait as exc:
        return WaitEnded(frame=effect.frame, call=call.id, outcome="refused", result=str(exc))


def time_out_wait(now: Continuation, frame: str, call: str) -> WaitEnded | OutcomeUnknown:
    """Return the end of a wait whose time has come. A call that its instance has begun is in doubt."""
    waiting_call = now.call(frame, call)
    if waiting_call.started_at is not None:
        error = "its instance used the approval and has reported no outcome"
        return OutcomeUnknown(frame=frame, call=call, attempt=waiting_call.attempt, error=error)
    for_time = waiting_call.terms is not None and waiting_call.terms.waits == "time"
    result: dict[str, Any] = {"timed_out": True}
    if for_time:
        result = {"slept_until": waiting_call.until.isoformat() if waiting_call.until else None}
    return WaitEnded(frame=frame, call=call, outcome="timed_out", result=result)


def receive_inquiry(now: Continuation, signal: InquirySignal) -> QuestionAsked | None:
    """Return the event that receives an inquiry, None if its gate is no longer open."""
    for pending in now.pending:
        if pending.gate == signal.gate and pending.call and now.phase is Phase.STARTED:
            return QuestionAsked(
                frame=pending.frame,
                call=pending.call,
                gate=pending.gate,
                question=signal.inquiry,
                by=signal.by,
                text=signal.text,
            )
    return None


def open_limit_gate(
    now: Continuation, reached: Sequence[ExhaustedLimit], at: datetime
) -> tuple[tuple[BudgetExceeded, ...], AdmissionResult]:
    """Return one gate for all exhausted limits, with an event for each limit."""
    frame = next((exhausted.frame for exhausted in reached if exhausted.frame is not None), ROOT)
    reason = "; ".join(
        f"{_name_owner(now, exhausted)} reached its limit: {describe_exhaustion(exhausted)}"
        for exhausted in reached
    )
    reason = (
        reason[0].upper() + reason[1:] if frame == ROOT and reached[0].frame is None else reason
    )
    args = {
        "limits": [
            {
                "of": _name_owner(now, exhausted),
                "limit": name_limit(exhausted.limit),
                "used": "unknown"
                if exhausted.used is None
                else to_text(exhausted.limit, exhausted.used),
                "allowed": to_text(exhausted.limit, exhausted.allowed),
            }
            for exhausted in reached
        ]
    }
    gate = open_frame_gate(now, frame, GateKind.LIMIT, reason=reason, args=args, at=at)
    assert gate.gate is not None
    exceeded = tuple(
        BudgetExceeded(
            gate=gate.gate.gate,
            frame=exhausted.frame,
            limit=exhausted.limit,
            used=exhausted.used,
            allowed=exhausted.allowed,
            at=at,
        )
        for exhausted in reached
    )
    return exceeded, gate


def _begin_event_wait(frame: str, call: Call, at: datetime) -> WaitStarted:
    event, match = call.args.get("event"), call.args.get("match")
    if not isinstance(event, str) or not 1 <= len(event) <= MAX_EVENT_NAME:
        raise InvalidWait(f"event: its name must have 1 to {MAX_EVENT_NAME} characters")
    if not isinstance(match, dict):
        raise InvalidWait("match: must be an object; {} is contained in every event")
    if (size := measure_size(match)) > MAX_MATCH:
        raise InvalidWait(f"match: is {size} bytes of JSON, at most {MAX_MATCH} are taken")
    until = _read_time(call.args.get("until"), "until", at)
    return WaitStarted(frame=frame, call=call.id, until=until, event=event, match=match)


def _read_time(text: object, field: str, at: datetime) -> datetime:
    """Read a future time (RFC 3339). The error contains the present time, because a model has no clock."""
    now = f"it is {at.isoformat(timespec='seconds')} now"
    try:
        moment = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise InvalidWait(
            f"{field}: must be a moment with its zone, as in 2030-01-31T09:00:00Z; {now}"
        )
    if moment <= at:
        raise InvalidWait(f"{field}: must be still to come; {now}")
    if moment > at + timedelta(days=MAX_WAIT_DAYS):
        raise InvalidWait(f"{field}: must be at most {MAX_WAIT_DAYS} days ahead; {now}")
    return moment


def _name_owner(now: Continuation, exhausted: ExhaustedLimit) -> str:
    return "the run" if exhausted.frame is None else now.frame(exhausted.frame).agent

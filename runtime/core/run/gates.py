"""Opens, settles and closes gates, and records the inquiries of people about calls that wait at one.

While a gate of a frame is open, no new effect starts in the frame: a hold and a version gate block their frame, a limit
gate blocks the whole run, because budgets are the run's. Running effects finish, and their outcomes are recorded.
"""

import dataclasses
from typing import Any
from uuid import UUID

from runtime.core.run import events
from runtime.core.run.continuation import Continuation, Frame, Inquiry, Pending, Phase, replace
from runtime.core.run.frames import make_call_result
from runtime.core.run.transitions import FRAMES, look_up_next_state
from runtime.core.values.budgets import Limit, add_usage, read_granted
from runtime.core.values.enums import SETTLED, Decision, GateKind
from runtime.core.values.errors import IllegalTransition, UnknownSubject
from runtime.core.values.verdicts import FRAME_GATES, VERDICTS

WAITING = "waiting"  # outcome of a call of the turn that has no result yet
QUESTION = "question"  # role of the last message of the request, by the older word


# Open gates


def find_gate_of_call(now: Continuation, frame: str, call: str) -> Pending | None:
    """Return the open gate of a call, None without one."""
    return next((gate for gate in now.pending if (gate.frame, gate.call) == (frame, call)), None)


def add_gate(now: Continuation, event: events.GateOpened, tool: str = "") -> Continuation:
    """Add the gate. `tool` is that of its call. Raises IllegalTransition if it is already open."""
    if any(pending.gate == event.gate for pending in now.pending):
        raise IllegalTransition("Gate", "open", event.type, str(event.gate))
    pending = Pending(
        gate=event.gate,
        kind=event.kind,
        frame=event.frame,
        call=event.call,
        path=now.path(event.frame, tool),
        expires_at=event.expires_at,
        version=event.version,
    )
    return replace(now, pending=(*now.pending, pending))


def remove_gate(now: Continuation, event: events.GateDecided | events.GateClosed) -> Continuation:
    """Remove the gate with its questions. Raises UnknownSubject if it is not open at that place."""
    subject = (event.gate, event.frame, event.call)
    if all((pending.gate, pending.frame, pending.call) != subject for pending in now.pending):
        raise UnknownSubject("open gate", str(event.gate))
    return _without_gate(now, event.gate)


def settle_gate(now: Continuation, event: events.OutcomeArrived) -> Continuation:
    """Remove the in-doubt gate of the call. Raise UnknownSubject unless the event names it."""
    gate = find_gate_of_call(now, event.frame, event.call)
    if event.gate != (None if gate is None else gate.gate):
        raise UnknownSubject("open gate", str(event.gate))
    return now if gate is None else _without_gate(now, event.gate)


def decide_gate(now: Continuation, pending: Pending, decision: Decision) -> events.GateDecided:
    """Return the event of a person's decision on an open gate."""
    terms = now.call(pending.frame, pending.call).terms if pending.call else None
    rule = VERDICTS[decision.verdict]
    return events.GateDecided(
        gate=pending.gate,
        frame=pending.frame,
        call=pending.call,
        verdict=decision.verdict,
        by=decision.by,
        reason=decision.reason,
        result=decision.result,
        # The entry says so, and a replay needs no rule of the release that wrote it.
        stands=rule.is_remembered,
        edit=decision.edit,
        answer=rule.replaces_call and terms is not None and terms.answers,
    )


def read_grant(
    now: Continuation, pending: Pending, decision: Decision
) -> events.BudgetGranted | None:
    """Read the grant of a decision; None if it is not about a limit or ends the run. Raises InvalidBudget."""
    if VERDICTS[decision.verdict].carries != "grant" or not pending.kind.is_limit:
        return None
    reached = {exhausted.limit for exhausted in now.short.limits} if now.short else set[Limit]()
    amounts = read_granted(decision.result, reached)
    return events.BudgetGranted(gate=pending.gate, by=decision.by, amounts=amounts)


def extend_gate(now: Continuation, event: events.GateExtended) -> Continuation:
    """Move the deadline of a gate. Raises IllegalTransition unless it is the present one, and becomes later."""
    gates = {gate.gate: gate for gate in now.pending}
    present = gates[event.gate].expires_at if event.gate in gates else None
    if now.phase is not Phase.STARTED or not present == event.before < event.until:
        raise IllegalTransition("Gate", f"open until {present}", event.type, str(event.gate))
    gates[event.gate] = dataclasses.replace(gates[event.gate], expires_at=event.until)
    return replace(now, pending=tuple(gates.values()))


def _without_gate(now: Continuation, gate: UUID | None) -> Continuation:
    now = replace(now, pending=tuple(pending for pending in now.pending if pending.gate != gate))
    if not now.questions:
        return now
    return replace(now, questions=tuple(one for one in now.questions if one.gate != gate))


# Gates of frames


def is_frame_gate(event: events.GateOpened | events.GateDecided | events.GateClosed) -> bool:
    """Say whether the gate belongs to a frame, not to a call."""
    return not event.call


def is_blocked_by_gate(now: Continuation, frame: str) -> bool:
    """Say whether an open gate blocks this frame."""
    return bool(now.pending) and any(
        gate.kind is GateKind.LIMIT or (gate.kind in FRAME_GATES and gate.frame == frame)
        for gate in now.pending
    )


def evolve_frame_gate(
    now: Continuation, event: events.GateOpened | events.GateDecided | events.GateClosed
) -> Continuation:
    """Return the continuation after an event of a frame's gate. Raises IllegalTransition or UnknownSubject."""
    frame = now.frame(event.frame)
    match event:
        case events.GateOpened():
            if event.kind not in FRAME_GATES:
                raise IllegalTransition("Gate", "without a call", event.type, str(event.gate))
            if any((gate.frame, gate.kind) == (event.frame, event.kind) for gate in now.pending):
                raise IllegalTransition("Gate", f"{event.kind} is open", event.type, event.frame)
            look_up_next_state(FRAMES, frame.state, f"{event.type}:{event.kind}", subject=frame.id)
            if event.kind is GateKind.HOLD:
                frame = replace(frame, cleared_at=event.at)
            return add_gate(now, event).with_frame(frame)
        case events.GateDecided():
            after = remove_gate(now, event)
            kind = next(gate.kind for gate in now.pending if gate.gate == event.gate)
            look_up_next_state(
                FRAMES, frame.state, f"{event.type}:{event.verdict}", subject=frame.id
            )
            goes_on = kind is GateKind.HOLD and VERDICTS[event.verdict].carries == "grant"
            if goes_on and any(call.credential for call in frame.calls):
                calls = tuple(
                    replace(call, credential="") if call.credential else call
                    for call in frame.calls
                )
                frame = replace(frame, calls=calls)
            elif goes_on:
                frame = replace(frame, cleared=frame.turn, outage=None)
            return after.with_frame(frame)
        case events.GateClosed():
            look_up_next_state(FRAMES, frame.state, event.type, subject=frame.id)
            return remove_gate(now, event)


# Inquiries: the agent's model answers them outside of its conversation. An inquiry ends with its answer, with a
# failure, or with its gate. Neither it nor its answer becomes a message of the frame, so it cannot change what the
# agent does: the person who asks may still decide.


def open_inquiry(now: Continuation, inquiry: UUID) -> Inquiry | None:
    """Return the inquiry if it has no answer yet and its gate is open, else None."""
    return next((question for question in now.questions if question.id == inquiry), None)


def with_inquiry(frame: Frame, inquiry: Inquiry) -> Frame:
    """Return the frame with the messages that its model gets with the inquiry: results so far, then the inquiry."""
    results = [
        make_call_result(call)
        if call.state in SETTLED
        else {"call": call.id, "tool": call.tool, "outcome": WAITING, "content": ""}
        for call in frame.list_turn_calls()
    ]
    tool = frame.find(inquiry.call).tool
    question: dict[str, Any] = {
        "role": QUESTION,
        "by": inquiry.by,
        "content": inquiry.text,
        "tool": tool,
        "call": inquiry.call,
    }
    messages = ({"role": "results", "results": results}, question)
    return replace(frame, messages=frame.messages + messages)


def evolve_inquiry(now: Continuation, event: events.InquiryEvent) -> Continuation:
    """Return the continuation after an event of an inquiry. Raises IllegalTransition or UnknownSubject."""
    if isinstance(event, events.AnswerDropped) and now.phase in (Phase.STARTED, Phase.CANCELLING):
        return _add_usage(now, event)
    if now.phase is not Phase.STARTED:
        raise IllegalTransition(type(now.phase).__name__, now.phase, event.type, str(now.run))
    if isinstance(event, events.QuestionAsked):
        subject = (event.gate, event.frame, event.call)
        if all((pending.gate, pending.frame, pending.call) != subject for pending in now.pending):
            raise UnknownSubject("open gate", str(event.gate))
        inquiry = Inquiry(
            id=event.question,
            gate=event.gate,
            frame=event.frame,
            call=event.call,
            by=event.by,
            text=event.text,
        )
        return replace(now, questions=(*now.questions, inquiry))
    remaining = tuple(question for question in now.questions if question.id != event.question)
    if len(remaining) == len(now.questions):
        raise UnknownSubject("open question", str(event.question))
    now = replace(now, questions=remaining)
    return _add_usage(now, event) if isinstance(event, events.QuestionAnswered) else now


def _add_usage(
    now: Continuation, event: events.QuestionAnswered | events.AnswerDropped
) -> Continuation:
    return replace(now, usage=add_usage(now.usage, event.usage))

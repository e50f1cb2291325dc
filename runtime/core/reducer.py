"""How a run changes: `evolve(continuation, event)`.

A turn: the model replies with calls; each is judged; gated ones wait for people, admitted ones run
or open child frames; when every call of the turn is settled their results go to the model in the
order it proposed them, and the next turn begins. A reply without calls answers the frame.
`evolve` either returns the next continuation or raises and leaves the given one as it was.
"""

from dataclasses import replace
from typing import Any, assert_never

from runtime.core.continuation import (
    SETTLED,
    Call,
    Continuation,
    Frame,
    Pending,
    Phase,
)
from runtime.core.decisions import Verdict
from runtime.core.errors import IllegalTransition, UnknownSubject
from runtime.core.events import (
    CallAdmitted,
    CallEvent,
    CallRefused,
    Cancelled,
    Cancelling,
    Completed,
    Event,
    Failed,
    FrameClosed,
    FrameOpened,
    GateClosed,
    GateDecided,
    GateOpened,
    ModelFailed,
    ModelReplied,
    OutcomeUnknown,
    RetryScheduled,
    RunStarted,
    ToolFailed,
    ToolReturned,
    ToolStarted,
    WaitEnded,
)
from runtime.core.ids import ROOT, call_id, child_frame
from runtime.core.transitions import CALLS, FRAMES, RUNS, next_state


def evolve(now: Continuation, event: Event) -> Continuation:
    """The continuation after `event`. Raises IllegalTransition or UnknownSubject."""
    match event:
        case RunStarted():
            return _start_run(now, event)
        case Completed() | Failed() | Cancelled():
            return _end_run(now, event)
        case Cancelling():
            phase = next_state(RUNS, now.phase, event.type, subject=str(now.run))
            return replace(now, phase=phase, outcome=event.reason, cancelled_by=event.by)
        case RetryScheduled(call=None):
            return _schedule_model(now, event)
        case WaitEnded(call=None):
            frame = _move_frame(now.frame(event.frame), event.type)
            return now.with_frame(replace(frame, attempt=frame.attempt + 1, until=None))
        case RetryScheduled() | WaitEnded():
            return _change_wait(now, event)
        case FrameOpened():
            return _open_frame(now, event)
        case ModelReplied():
            return _take_reply(now, event)
        case ModelFailed():
            frame = _move_frame(now.frame(event.frame), "ModelFailed")
            return now.with_frame(replace(frame, outcome=event.error))
        case FrameClosed():
            return _close_frame(now, event)
        case (
            CallAdmitted()
            | CallRefused()
            | GateOpened()
            | GateDecided()
            | GateClosed()
            | ToolStarted()
            | ToolReturned()
            | ToolFailed()
            | OutcomeUnknown()
        ):
            return _change_call(now, event)
        case _ as never:
            assert_never(never)


# The run


def _start_run(now: Continuation, event: RunStarted) -> Continuation:
    return replace(
        now,
        phase=next_state(RUNS, now.phase, "RunStarted", subject=str(now.run)),
        agent=event.agent,
        input=event.input,
        requester=event.requester,
    )


def _end_run(now: Continuation, event: Completed | Failed | Cancelled) -> Continuation:
    phase = next_state(RUNS, now.phase, event.type, subject=str(now.run))
    if now.phase is not Phase.CANCELLING:
        _move_frame(now.frame(ROOT), event.type)
    return replace(now, phase=phase, frames={}, pending=(), outcome=_outcome(event))


def _outcome(event: Completed | Failed | Cancelled) -> str:
    match event:
        case Completed():
            return event.output
        case Failed():
            return event.error
        case Cancelled():
            return event.reason


# Frames


def _open_frame(now: Continuation, event: FrameOpened) -> Continuation:
    if event.frame in now.frames or now.phase is not Phase.STARTED:
        raise IllegalTransition("Frame", "open", event.type, event.frame)
    if event.parent is not None and event.call is not None:
        if event.frame != child_frame(event.parent, event.call):
            raise UnknownSubject("child frame", event.frame)
        call = _move_call(now, event.parent, event.call, event.type)
        now = _with_call(now, event.parent, replace(call, frame=event.frame))
    elif event.frame != ROOT:
        raise UnknownSubject("parent of frame", event.frame)
    frame = Frame(
        id=event.frame,
        agent=event.agent,
        fingerprint=event.fingerprint,
        prompt=event.prompt,
        parent=event.parent,
        call=event.call,
        plan=event.plan,
        messages=({"role": "input", "content": event.input},),
    )
    return replace(now.with_frame(frame), agents={**now.agents, event.agent: event.fingerprint})


def _take_reply(now: Continuation, event: ModelReplied) -> Continuation:
    frame = _move_frame(
        now.frame(event.frame), "ModelReplied:calls" if event.calls else "ModelReplied:answer"
    )
    turn = frame.turn + 1
    calls = tuple(
        Call(id=call_id(turn, index), tool=proposal.tool, args=proposal.args)
        for index, proposal in enumerate(event.calls)
    )
    message = {
        "role": "model",
        "reply": event.reply,
        "text": event.text,
        "calls": [call.id for call in calls],
    }
    frame = replace(
        frame,
        turn=turn,
        attempt=1,
        messages=(*frame.messages, message),
        calls=(*frame.calls, *calls),
        outcome=None if calls else event.text,
    )
    usage = dict(now.usage)
    for kind, count in event.usage.items():
        usage[kind] = usage.get(kind, 0) + count
    return replace(now.with_frame(frame), usage=usage)


def _close_frame(now: Continuation, event: FrameClosed) -> Continuation:
    frame = now.frame(event.frame)
    trigger = f"{event.type}:{event.outcome}"
    _move_frame(frame, trigger)
    if frame.parent is None or frame.call is None:
        raise IllegalTransition("Frame", "root", event.type, event.frame)
    call = _move_call(now, frame.parent, frame.call, trigger)
    rest = {name: other for name, other in now.frames.items() if name != frame.id}
    now = replace(now, frames=rest)
    return _settle_turn(
        _with_call(now, frame.parent, replace(call, result=event.content)), frame.parent
    )


def _move_frame(frame: Frame, trigger: str) -> Frame:
    return replace(frame, state=next_state(FRAMES, frame.state, trigger, subject=frame.id))


# Calls


def _change_call(now: Continuation, event: CallEvent) -> Continuation:
    call = _move_call(now, event.frame, event.call, _trigger(event))
    match event:
        case CallAdmitted():
            call = replace(call, terms=event.terms)
        case CallRefused():
            call = replace(call, result=event.reason)
            now = replace(now, refusals=now.refusals + 1)
        case GateOpened():
            call = replace(call, terms=event.terms, gate=event.gate)
            now = _add_pending(now, event, call)
        case GateDecided():
            now = _drop_pending(now, event)
            call = _decided(call, event)
        case GateClosed():
            now = _drop_pending(now, event)
        case ToolStarted():
            _require_attempt(call, event.attempt, call.attempt + 1)
            call = replace(call, attempt=event.attempt, started_at=event.at)
        case ToolReturned():
            _require_attempt(call, event.attempt, call.attempt)
            call = replace(call, result=event.result)
        case ToolFailed():
            _require_attempt(call, event.attempt, call.attempt)
            call = replace(call, result=event.error)
        case OutcomeUnknown():
            _require_attempt(call, event.attempt, call.attempt)
            call = replace(call, gate=None)  # the gate of its approval is spent
        case _ as never:
            assert_never(never)
    return _settle_turn(_with_call(now, event.frame, call), event.frame)


def _decided(call: Call, event: GateDecided) -> Call:
    match event.verdict:
        case Verdict.HAPPENED:
            return replace(call, result=event.result, reported_by=event.by)
        case Verdict.DENY | Verdict.EXPIRE | Verdict.GIVE_UP:
            return replace(call, result=event.reason)
        case Verdict.APPROVE | Verdict.RUN_AGAIN:
            return call
        case _ as never:
            assert_never(never)


def _change_wait(now: Continuation, event: RetryScheduled | WaitEnded) -> Continuation:
    assert event.call is not None  # those without are the frame's
    call = _move_call(now, event.frame, event.call, event.type)
    match event:
        case RetryScheduled():
            _require_attempt(call, event.attempt, call.attempt)
            failures = call.failures + (event.cause == "error")
            call = replace(call, failures=failures, until=event.until)
        case WaitEnded():
            call = replace(call, until=None)
    return _with_call(now, event.frame, call)


def _schedule_model(now: Continuation, event: RetryScheduled) -> Continuation:
    frame = _move_frame(now.frame(event.frame), event.type)
    _require_attempt(frame, event.attempt, frame.attempt)
    return now.with_frame(replace(frame, until=event.until))


def _trigger(event: CallEvent) -> str:
    match event:
        case GateOpened():
            return f"{event.type}:{event.kind}"
        case GateDecided():
            return f"{event.type}:{event.verdict}"
        case _:
            return event.type


def _move_call(now: Continuation, frame: str, call: str, trigger: str) -> Call:
    found = now.call(frame, call)
    state = next_state(CALLS, found.state, trigger, subject=f"{frame}/{call}")
    return replace(found, state=state)


def _require_attempt(call: Call | Frame, attempt: int, expected: int) -> None:
    """An outcome counts only for the attempt that is under way."""
    if attempt != expected:
        raise IllegalTransition(
            "Attempt", f"at attempt {call.attempt}", f"attempt {attempt}", call.id
        )


def _with_call(now: Continuation, frame: str, call: Call) -> Continuation:
    holder = now.frame(frame)
    calls = tuple(call if other.id == call.id else other for other in holder.calls)
    return now.with_frame(replace(holder, calls=calls))


def _add_pending(now: Continuation, event: GateOpened, call: Call) -> Continuation:
    if any(pending.gate == event.gate for pending in now.pending):
        raise IllegalTransition("Gate", "open", event.type, str(event.gate))
    pending = Pending(
        gate=event.gate,
        kind=event.kind,
        frame=event.frame,
        call=event.call,
        path=now.path(event.frame, call.tool),
        expires_at=event.expires_at,
    )
    return replace(now, pending=(*now.pending, pending))


def _drop_pending(now: Continuation, event: GateDecided | GateClosed) -> Continuation:
    rest = tuple(
        pending
        for pending in now.pending
        if (pending.gate, pending.frame, pending.call) != (event.gate, event.frame, event.call)
    )
    if len(rest) == len(now.pending):
        raise UnknownSubject("open gate", str(event.gate))
    return replace(now, pending=rest)


# Turns


def _settle_turn(now: Continuation, frame: str) -> Continuation:
    """Hand the results to the model once every call of the turn has one."""
    holder = now.frame(frame)
    calls = holder.of_turn()
    if not all(call.state in SETTLED for call in calls):
        return now
    message = {"role": "results", "results": [_result(call) for call in calls]}
    holder = _move_frame(holder, "TurnSettled")
    return now.with_frame(replace(holder, messages=(*holder.messages, message)))


def _result(call: Call) -> dict[str, Any]:
    result = {
        "call": call.id,
        "tool": call.tool,
        "outcome": str(call.state),
        "content": call.result,
    }
    return result if call.reported_by is None else {**result, "reported_by": call.reported_by}

"""The reducer of a run: `evolve(continuation, event)`.

A turn: the model replies with calls, and each is checked. Gated calls wait for people; admitted ones run or open
child frames. When every call of the turn is settled, the results go to the model in the order of its proposals, and
the next turn begins. A reply without calls answers the frame. `evolve` returns the next continuation, or raises and
leaves the given one unchanged.
"""

from typing import Any, assert_never

from runtime.core.budgets import added
from runtime.core.call_states import SETTLED
from runtime.core.continuation import Call, Continuation, CutReply, Frame, Outage, Pause, Phase
from runtime.core.enums import GateKind, Verdict
from runtime.core.errors import IllegalTransition, UnknownSubject
from runtime.core.events import (
    AgentChanged,
    AnswerDropped,
    BudgetExceeded,
    BudgetGranted,
    CallAdmitted,
    CallEvent,
    CallPreviewed,
    CallRefused,
    Cancelled,
    Cancelling,
    Compacted,
    Completed,
    Event,
    Exported,
    Failed,
    Forked,
    FrameClosed,
    FrameOpened,
    GateClosed,
    GateDecided,
    GateOpened,
    Imported,
    MemorySummarised,
    MessageReceived,
    ModelFailed,
    ModelReplied,
    OutcomeArrived,
    OutcomeUnknown,
    Paused,
    QuestionAnswered,
    QuestionAsked,
    QuestionFailed,
    Resumed,
    Retried,
    RetryScheduled,
    RunStarted,
    ToolFailed,
    ToolReturned,
    ToolStarted,
    WaitEnded,
    WaitStarted,
)
from runtime.core.fast_replace import replace
from runtime.core.ids import ROOT, call_id, child_frame
from runtime.core.machine import pending, plans
from runtime.core.machine.active_time import active_seconds
from runtime.core.machine.agent_changes import change_agent
from runtime.core.machine.budget_accounting import charge, exceed, grant
from runtime.core.machine.calls.edits import edit_call, given_call, remember_edit
from runtime.core.machine.calls.inquiries import evolve_inquiry
from runtime.core.machine.calls.item_limits import count_refusal, item_of
from runtime.core.machine.calls.results import result_of
from runtime.core.machine.calls.revisions import denial_of, remember_changes, revise
from runtime.core.machine.compaction import compact, summarise_memory
from runtime.core.machine.failed_runs import retried
from runtime.core.machine.forks import apply_transfer
from runtime.core.machine.gates import evolve_frame_gate, is_frame_gate
from runtime.core.machine.messages import deliver, receive, undelivered_to
from runtime.core.machine.origin import joined, merged
from runtime.core.machine.transitions import (
    CALLS,
    FRAMES,
    PACES,
    RUNS,
    next_state,
)


def evolve(now: Continuation, event: Event) -> Continuation:
    """Return the continuation after `event`. Raises IllegalTransition or UnknownSubject."""
    if now.phase is Phase.EXPORTED and not isinstance(event, Imported):
        raise IllegalTransition("Run", now.phase, event.type, str(now.run))
    return charge(_evolve(now, event), event)


def _evolve(now: Continuation, event: Event) -> Continuation:
    """Apply an event. Replies and outcomes of calls come first, because a long journal has mostly these."""
    match event:
        case ModelReplied():
            return _add_reply(now, event)
        case (
            CallAdmitted()
            | CallPreviewed()
            | ToolStarted()
            | ToolReturned()
            | ToolFailed()
            | CallRefused()
            | OutcomeUnknown()
            | OutcomeArrived()
            | WaitStarted()
        ):
            return _change_call(now, event)
        case RunStarted():
            return _start_run(now, event)
        case Completed() | Failed() | Cancelled():
            return _end_run(now, event)
        case Cancelling():
            phase = next_state(RUNS, now.phase, event.type, subject=str(now.run))
            return replace(now, phase=phase, outcome=event.reason, cancelled_by=event.by)
        case Forked() | Exported() | Imported():
            phase = next_state(RUNS, now.phase, event.type, subject=str(now.run))
            return apply_transfer(now, event, phase)
        case Retried():
            phase = next_state(RUNS, now.phase, event.type, subject=str(now.run))
            return joined(retried(now, event, phase), event.by)
        case Paused():
            _change_pace(now, event)
            return replace(now, paused=Pause(by=event.by, reason=event.reason))
        case Resumed():
            _change_pace(now, event)
            return replace(now, paused=None)
        case MessageReceived():
            return receive(now, event)
        case RetryScheduled(call=None):
            return _schedule_model(now, event)
        case WaitEnded(call=None):
            frame = _move_frame(now.frame(event.frame), event.type)
            made = frame.ticket == 0  # a rate-limited provider was not called
            return now.with_frame(replace(frame, attempt=frame.attempt + made, until=None))
        case RetryScheduled() | WaitEnded(outcome="again"):
            return _change_retry(now, event)
        case QuestionAsked() | QuestionAnswered() | QuestionFailed() | AnswerDropped():
            return evolve_inquiry(now, event)
        case BudgetExceeded():
            return exceed(now, event)
        case BudgetGranted():
            return grant(now, event)
        case FrameOpened():
            return _open_frame(now, event)
        case Compacted():
            return compact(now, event)
        case MemorySummarised():
            return summarise_memory(now, event)
        case ModelFailed():
            frame = _move_frame(now.frame(event.frame), "ModelFailed")
            return now.with_frame(replace(frame, outcome=event.error))
        case AgentChanged():
            return change_agent(now, event)
        case FrameClosed():
            return _close_frame(now, event)
        case GateOpened() | GateDecided() | GateClosed() if is_frame_gate(event):
            return evolve_frame_gate(now, event)
        case GateOpened() | GateDecided() | GateClosed():
            return _change_call(now, event)
        case WaitEnded():
            return joined(_change_call(now, event), event.by)
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
        origin=merged([event.requester], event.makers),
        budget=event.budget,
        business_key=event.business_key,
        thread=event.thread,
        memory=event.memory,
        memory_tokens=event.memory_tokens,
    )


def _end_run(now: Continuation, event: Completed | Failed | Cancelled) -> Continuation:
    phase = next_state(RUNS, now.phase, event.type, subject=str(now.run))
    if now.phase is not Phase.CANCELLING:
        _move_frame(now.frame(ROOT), event.type)
    left = now.frames if phase is Phase.FAILED else {}  # the run may be tried again
    return replace(
        now, phase=phase, frames={}, left=left, pending=(), questions=(), outcome=_outcome(event)
    )


def _change_pace(now: Continuation, event: Paused | Resumed) -> None:
    next_state(RUNS, now.phase, event.type, subject=str(now.run))
    next_state(PACES, now.pace, event.type, subject=str(now.run))


def _outcome(event: Completed | Failed | Cancelled) -> Any:
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
        parent = now.frame(event.parent)
        call = _move_call(parent, event.call, event.type)
        now = _with_call(now, parent, replace(call, frame=event.frame))
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
        terms=event.model,
        compaction=event.compaction,
        messages=({"role": "input", "content": event.input},),
        opened_at=event.at,
        budget=event.budget,
        rates=event.rates,
        instructions=event.instructions,
        pinned=event.pinned,
        item=event.item,
        since=now.worked if event.at is None else active_seconds(now, event.at),
    )
    return replace(now.with_frame(frame), agents={**now.agents, event.agent: event.fingerprint})


def _add_reply(now: Continuation, event: ModelReplied) -> Continuation:
    now, frame = deliver(now, now.frame(event.frame), event.heard)
    answers = not event.calls and not undelivered_to(now, frame.id)
    state = next_state(FRAMES, frame.state, _reply(event, answers), subject=frame.id)
    turn = frame.turn + 1
    calls = tuple(
        Call(id=call_id(turn, index), tool=proposal.tool, args=proposal.args)
        for index, proposal in enumerate(event.calls)
    )
    if event.given_by:
        calls = tuple(given_call(call, event.given_by) for call in calls)
    message: tuple[dict[str, Any], ...] = (
        {
            "role": "model",
            "reply": event.reply,
            "text": event.text,
            "calls": [call.id for call in calls],
            **({"output": event.output} if event.output_kept else {}),
            **({"given_by": event.given_by} if event.given_by else {}),
        },
    )
    frame = replace(
        frame,
        state=state,
        turn=turn,
        attempt=1,
        failures=0,
        model="",
        ticket=0,
        outage=None,
        cut=None,
        given=None,
        messages=frame.messages + message,
        calls=frame.calls + calls,
        at_once=event.at_once,
        outcome=_answer(event) if answers else None,
    )
    usage = added(now.usage, event.usage)
    return replace(now, frames={**now.frames, frame.id: frame}, usage=usage)


def _answer(event: ModelReplied) -> Any:
    return event.text if event.output is None else event.output


def _reply(event: ModelReplied, answers: bool) -> str:
    if event.calls:
        return f"{event.type}:calls"
    return f"{event.type}:answer" if answers else f"{event.type}:interim"


def _close_frame(now: Continuation, event: FrameClosed) -> Continuation:
    frame = now.frame(event.frame)
    trigger = f"{event.type}:{event.outcome}"
    _move_frame(frame, trigger)
    if frame.parent is None or frame.call is None:
        raise IllegalTransition("Frame", "root", event.type, event.frame)
    parent = now.frame(frame.parent)
    call = _move_call(parent, frame.call, trigger)
    rest = {name: other for name, other in now.frames.items() if name != frame.id}
    now = replace(now, frames=rest)
    return _with_call(now, parent, replace(call, result=event.content))


def _move_frame(frame: Frame, trigger: str) -> Frame:
    return replace(frame, state=next_state(FRAMES, frame.state, trigger, subject=frame.id))


# Calls


def _change_call(now: Continuation, event: CallEvent | WaitStarted | WaitEnded) -> Continuation:
    assert event.call is not None  # gates without a call are the frame's
    frame = now.frame(event.frame)
    call = _move_call(frame, event.call, _trigger(event))
    match event:
        case CallAdmitted():
            call = replace(call, terms=event.terms)
        case CallPreviewed():
            call = replace(call, preview=event.preview)
        case CallRefused():
            call = replace(call, result=event.reason)
            now, frame = count_refusal(now, frame)
        case GateOpened():
            call = replace(call, terms=event.terms, gate=event.gate)
            if call.preview is not None or call.shown is not None:
                shown = call.preview if event.kind is GateKind.APPROVAL else None
                call = replace(call, preview=None, shown=shown)
            if event.kind is GateKind.APPROVAL:
                frame, call = revise(frame, call)
            now = pending.add(now, event, call.tool)
        case GateDecided():
            now = _remember_denial(pending.drop(now, event), call, event)
            now = remember_edit(now, call, event)
            frame = remember_changes(frame, call, event)
            call = _decided(call, event)
        case GateClosed():
            now = pending.drop(now, event)
        case ToolStarted():
            _require_attempt(call, event.attempt, call.attempt + 1)
            call = replace(call, attempt=event.attempt, started_at=event.at)
            if call.preview is not None:
                call = replace(call, preview=None)
        case ToolReturned():
            _require_attempt(call, event.attempt, call.attempt)
            call = replace(call, result=event.result, stored=event.stored)
            frame = plans.keep(frame, call)
        case ToolFailed():
            _require_attempt(call, event.attempt, call.attempt)
            call = replace(call, result=event.error)
        case OutcomeUnknown():
            _require_attempt(call, event.attempt, call.attempt)
            call = replace(call, gate=None)  # its approval is used up
        case OutcomeArrived():
            _require_attempt(call, event.attempt, call.attempt)
            now = pending.settle(now, event)
            result = event.result if event.outcome == "returned" else event.error
            call = replace(call, result=result, stored=event.stored)
        case WaitStarted():
            call = replace(call, until=event.until)
        case WaitEnded():
            call = replace(call, until=None, result=event.result)
        case _ as never:
            assert_never(never)
    return _with_call(now, frame, call)


def _decided(call: Call, event: GateDecided) -> Call:
    match event.verdict:
        case Verdict.HAPPENED | Verdict.ANSWER:
            answered = event.verdict is Verdict.ANSWER
            call = replace(call, result=event.result, stored=event.stored, answered=answered)
            return replace(call, reported_by=event.by)
        case Verdict.DENY:
            return replace(call, result=event.reason)
        case Verdict.REQUEST_CHANGES:
            return replace(call, result=event.reason, verdict="request_changes")
        case Verdict.EXPIRE:
            return replace(call, result=event.reason, verdict="expire")
        case Verdict.GIVE_UP:
            return replace(call, result=event.reason, verdict="give_up")
        case Verdict.EDIT:
            return edit_call(call, event)
        case Verdict.APPROVE | Verdict.RUN_AGAIN | Verdict.CONTINUE | Verdict.STOP:
            return call  # the last two are gates of frames: no call has such a transition
        case _ as never:
            assert_never(never)


def _remember_denial(now: Continuation, call: Call, event: GateDecided) -> Continuation:
    if not event.stands or call.terms is None:
        return now
    apart = item_of(now, now.frame(event.frame)) is not None
    denial = denial_of(call.tool, call.id, event, apart=apart)
    return replace(now, denials={**now.denials, call.terms.digest: denial})


def _change_retry(now: Continuation, event: RetryScheduled | WaitEnded) -> Continuation:
    assert event.call is not None  # gates without a call are the frame's
    frame = now.frame(event.frame)
    call = _move_call(frame, event.call, event.type)
    match event:
        case RetryScheduled():
            _require_attempt(call, event.attempt, call.attempt)
            failures = call.failures + (event.cause == "error")
            needs = event.error if event.cause == "credential" else ""
            call = replace(call, failures=failures, until=event.until, credential=needs)
        case WaitEnded():
            call = replace(call, until=None)
    return _with_call(now, frame, call)


def _schedule_model(now: Continuation, event: RetryScheduled) -> Continuation:
    frame = _move_frame(now.frame(event.frame), event.type)
    _require_attempt(frame, event.attempt, frame.attempt)
    if event.instead:
        frame = replace(frame, model=event.instead, failures=0)
    elif event.asks_at is not None:  # all models were called: the next round begins with the first
        frame = replace(frame, model="", failures=0)
    elif event.cause == "error":
        frame = replace(frame, failures=frame.failures + 1)
    since = event.since or event.until
    if event.tokens and since is not None:
        cut = CutReply(text=event.partial, tokens=event.tokens, since=since, cause=event.cause)
        frame = replace(frame, cut=cut)
    outage = _outage(frame, event)
    now = now.with_frame(replace(frame, until=event.until, ticket=event.ticket, outage=outage))
    return replace(now, usage=added(now.usage, event.usage)) if event.usage else now


def _outage(frame: Frame, event: RetryScheduled) -> Outage | None:
    if event.since is None:
        return frame.outage
    rounds, tries = (frame.outage.rounds, frame.outage.tries) if frame.outage else (0, 0)
    return Outage(
        since=event.since,
        error=event.error,
        rounds=rounds + (event.asks_at is not None),
        asks_at=event.asks_at,
        limited=event.model if event.limited and not event.instead else "",
        tries=tries + event.limited,
    )


def _trigger(event: CallEvent | WaitStarted | WaitEnded) -> str:
    match event:
        case GateOpened():
            return f"{event.type}:{event.kind}"
        case GateDecided():
            return f"{event.type}:{event.verdict}"
        case WaitEnded() | OutcomeArrived():
            return f"{event.type}:{event.outcome}"
        case _:
            return event.type


def _move_call(frame: Frame, call: str, trigger: str) -> Call:
    found = frame.find(call)
    state = next_state(CALLS, found.state, trigger, subject=f"{frame.id}/{call}")
    return replace(found, state=state)


def _require_attempt(call: Call | Frame, attempt: int, expected: int) -> None:
    """Raise IllegalTransition unless the outcome belongs to the running attempt."""
    if attempt != expected:
        raise IllegalTransition(
            "Attempt", f"at attempt {call.attempt}", f"attempt {attempt}", call.id
        )


def _with_call(now: Continuation, frame: Frame, call: Call) -> Continuation:
    if call.state in SETTLED and (call.preview or call.shown or call.revises):
        call = replace(call, preview=None, shown=None, revises=None)
    holder = frame.with_call(call)
    return now.with_frame(_settled(now, holder) if call.state in SETTLED else holder)


# Turns


def _settled(now: Continuation, frame: Frame) -> Frame:
    """Hand the results to the model if every call of the turn has one. A released answer ends the frame instead.

    If people wrote meanwhile, the model reads that first.
    """
    calls = frame.of_turn()
    if not all(call.state in SETTLED for call in calls):
        return frame
    results = ({"role": "results", "results": [result_of(call) for call in calls]},)
    answer = _released(calls) if not undelivered_to(now, frame.id) else None
    trigger = "TurnSettled" if answer is None else "TurnSettled:answer"
    state = next_state(FRAMES, frame.state, trigger, subject=frame.id)
    frame = replace(frame, state=state, messages=frame.messages + results)
    return frame if answer is None else replace(frame, outcome=answer.result)


def _released(calls: tuple[Call, ...]) -> Call | None:
    """Return the only call of a turn if it released the answer of its frame."""
    call = calls[0]
    gives = len(calls) == 1 and call.terms is not None and call.terms.answers
    return call if gives and call.state == "returned" else None

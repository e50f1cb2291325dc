"""The reducer of a run: `evolve(continuation, event)`, and folds of a journal with it.

A turn: the model replies with calls, and each is checked. Gated calls wait for people; admitted ones run or open
child frames. When every call of the turn is settled, the results go to the model in the order of its proposals, and
the next turn begins. A reply without calls answers the frame. `evolve` returns the next continuation, or raises and
leaves the given one unchanged.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, assert_never
from uuid import UUID

from runtime.core.run import events
from runtime.core.run.accounting import advance_clock, charge, compute_active_seconds, exceed, grant
from runtime.core.run.calls import call_after, change_call, propose_calls, with_call
from runtime.core.run.continuation import (
    Continuation,
    Frame,
    Pause,
    Phase,
    add_people,
    merge_people,
    replace,
)
from runtime.core.run.events import Event
from runtime.core.run.forks import apply_transfer, restore_failed
from runtime.core.run.frames import (
    change_agent,
    compact,
    deliver_messages,
    list_undelivered,
    make_input_message,
    make_reply_message,
    move_frame,
    receive_message,
    schedule_model,
    summarise_memory,
)
from runtime.core.run.gates import evolve_frame_gate, evolve_inquiry, extend_gate, is_frame_gate
from runtime.core.run.transitions import FRAMES, PACES, RUNS, look_up_next_state
from runtime.core.values.budgets import NO_LIMITS, add_usage
from runtime.core.values.errors import IllegalTransition, UnknownSubject
from runtime.core.values.ids import ROOT, make_child_frame_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The events of one commit, and its database time."""

    at: datetime
    events: tuple[Event, ...]


def make_initial_state(run: UUID) -> Continuation:
    """Return a run without events."""
    return Continuation(run=run)


def fold(now: Continuation, new_events: Iterable[Event]) -> Continuation:
    """Return the continuation after all `new_events`. Raises what evolve raises."""
    for event in new_events:
        now = evolve(now, event)
    return now


def step(
    now: Continuation, new_events: Iterable[Event], *, head: str, at: datetime
) -> Continuation:
    """Return the continuation after one entry, written at `at`, whose MAC is `head`."""
    after = replace(fold(now, new_events), position=now.position + 1, head=head)
    return advance_clock(now, after, at)


def evolve(now: Continuation, event: Event) -> Continuation:
    """Return the continuation after `event`. Raises IllegalTransition or UnknownSubject."""
    if now.phase is Phase.EXPORTED and not isinstance(event, events.Imported):
        raise IllegalTransition("Run", now.phase, event.type, str(now.run))
    match (
        event
    ):  # replies and outcomes of calls come first, because a long journal has mostly these
        case events.ModelReplied():
            return charge(_add_reply(now, event), event)
        case events.ToolReturned() | events.ToolFailed() | events.OutcomeUnknown():
            return charge(change_call(now, event), event)
        case (
            events.CallAdmitted()
            | events.CallPreviewed()
            | events.ToolStarted()
            | events.CallRefused()
            | events.OutcomeArrived()
            | events.WaitStarted()
        ):
            return change_call(now, event)
        case events.RunStarted():
            return _start_run(now, event)
        case events.Completed() | events.Failed() | events.Cancelled():
            return _end_run(now, event)
        case events.Cancelling():
            phase = look_up_next_state(RUNS, now.phase, event.type, subject=str(now.run))
            return replace(now, phase=phase, outcome=event.reason, cancelled_by=event.by)
        case events.Forked() | events.Exported() | events.Imported():
            phase = look_up_next_state(RUNS, now.phase, event.type, subject=str(now.run))
            return apply_transfer(now, event, phase)
        case events.Retried():
            phase = look_up_next_state(RUNS, now.phase, event.type, subject=str(now.run))
            return add_people(restore_failed(now, event, phase), event.by)
        case events.Paused():
            _change_pace(now, event)
            return replace(now, paused=Pause(by=event.by, reason=event.reason))
        case events.Resumed():
            _change_pace(now, event)
            return replace(now, paused=None)
        case events.MessageReceived():
            return receive_message(now, event)
        case events.GateExtended():
            return extend_gate(now, event)
        case events.RetryScheduled(call=None):
            return charge(schedule_model(now, event), event)
        case events.RetryScheduled():
            return charge(change_call(now, event), event)
        case events.WaitEnded(call=None):
            frame = move_frame(now.frame(event.frame), event.type)
            attempts = frame.ticket == 0  # a rate-limited provider was not called
            return now.with_frame(replace(frame, attempt=frame.attempt + attempts, until=None))
        case events.QuestionAsked() | events.QuestionFailed():
            return evolve_inquiry(now, event)
        case events.QuestionAnswered() | events.AnswerDropped():
            return charge(evolve_inquiry(now, event), event)
        case events.BudgetExceeded():
            return exceed(now, event)
        case events.BudgetGranted():
            return grant(now, event)
        case events.FrameOpened():
            return _open_frame(now, event)
        case events.Compacted():
            return charge(compact(now, event), event)
        case events.MemorySummarised():
            return charge(summarise_memory(now, event), event)
        case events.ModelFailed():
            frame = move_frame(now.frame(event.frame), "ModelFailed")
            return now.with_frame(replace(frame, outcome=event.error))
        case events.AgentChanged():
            return change_agent(now, event)
        case events.FrameClosed():
            return _close_frame(now, event)
        case events.GateOpened() | events.GateDecided() | events.GateClosed() if is_frame_gate(
            event
        ):
            return evolve_frame_gate(now, event)
        case events.GateOpened() | events.GateDecided() | events.GateClosed() | events.WaitEnded():
            return change_call(now, event)
        case _ as never:
            assert_never(never)


# The run


def _start_run(now: Continuation, event: events.RunStarted) -> Continuation:
    return replace(
        now,
        phase=look_up_next_state(RUNS, now.phase, "RunStarted", subject=str(now.run)),
        agent=event.agent,
        input=event.input,
        requester=event.requester,
        origin=merge_people([event.requester], event.makers),
        budget=NO_LIMITS if event.budget == NO_LIMITS else event.budget,  # the same object
        business_key=event.business_key,
        thread=event.thread,
        memory=event.memory,
        memory_tokens=event.memory_tokens,
    )


def _end_run(
    now: Continuation, event: events.Completed | events.Failed | events.Cancelled
) -> Continuation:
    phase = look_up_next_state(RUNS, now.phase, event.type, subject=str(now.run))
    if now.phase is not Phase.CANCELLING:
        move_frame(now.frame(ROOT), event.type)
    outcome: Any
    match event:
        case events.Completed():
            outcome = event.output
        case events.Failed():
            outcome = event.error
        case events.Cancelled():
            outcome = event.reason
    restorable = now.frames if phase is Phase.FAILED else {}  # the run may be tried again
    return replace(
        now,
        phase=phase,
        frames={},
        left=restorable,
        pending=(),
        questions=(),
        outcome=outcome,
    )


def _change_pace(now: Continuation, event: events.Paused | events.Resumed) -> None:
    look_up_next_state(RUNS, now.phase, event.type, subject=str(now.run))
    look_up_next_state(PACES, now.pace, event.type, subject=str(now.run))


# Frames


def _open_frame(now: Continuation, event: events.FrameOpened) -> Continuation:
    if event.frame in now.frames or now.phase is not Phase.STARTED:
        raise IllegalTransition("Frame", "open", event.type, event.frame)
    if event.parent is not None and event.call is not None:
        if event.frame != make_child_frame_id(event.parent, event.call):
            raise UnknownSubject("child frame", event.frame)
        parent = now.frame(event.parent)
        now = with_call(now, parent, call_after(parent.find(event.call), event))
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
        messages=(make_input_message(event.input),),
        opened_at=event.at,
        budget=event.budget,
        rates=event.rates,
        instructions=event.instructions,
        pinned=event.pinned,
        item=event.item,
        since=now.worked if event.at is None else compute_active_seconds(now, event.at),
    )
    return replace(now.with_frame(frame), agents={**now.agents, event.agent: event.fingerprint})


def _add_reply(now: Continuation, event: events.ModelReplied) -> Continuation:
    now, frame = deliver_messages(now, now.frame(event.frame), event.heard)
    answers = not event.calls and not list_undelivered(now, frame.id)
    kind = "calls" if event.calls else "answer" if answers else "interim"
    state = look_up_next_state(FRAMES, frame.state, f"{event.type}:{kind}", subject=frame.id)
    answer = event.text if event.output is None else event.output
    turn = frame.turn + 1
    calls = propose_calls(event, turn)
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
        messages=(*frame.messages, make_reply_message(event, calls)),
        calls=frame.calls + calls,
        at_once=event.at_once,
        outcome=answer if answers else None,
    )
    usage = add_usage(now.usage, event.usage)
    return replace(now, frames={**now.frames, frame.id: frame}, usage=usage)


def _close_frame(now: Continuation, event: events.FrameClosed) -> Continuation:
    frame = now.frame(event.frame)
    move_frame(frame, f"{event.type}:{event.outcome}")
    if frame.parent is None or frame.call is None:
        raise IllegalTransition("Frame", "root", event.type, event.frame)
    parent = now.frame(frame.parent)
    remaining = {name: other for name, other in now.frames.items() if name != frame.id}
    now = replace(now, frames=remaining)
    return with_call(now, parent, call_after(parent.find(frame.call), event))

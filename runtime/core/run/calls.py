"""Applies events to calls: each has a row in the table of transitions and one change of its call.

When the last call of a turn is settled, the results go to the model. People also leave marks for later calls: a denial,
an edit or a request for changes.
"""

import dataclasses
from collections.abc import Iterable
from operator import attrgetter
from typing import assert_never

from runtime.core.run import events, frames, gates
from runtime.core.run.continuation import (
    MAX_DENIALS,
    MAX_REFUSALS,
    Call,
    Continuation,
    Denial,
    Edited,
    Frame,
    Revision,
    ToRevise,
    add_people,
    replace,
)
from runtime.core.run.transitions import CALLS, FRAMES, look_up_next_state, require_attempt
from runtime.core.values.enums import SETTLED
from runtime.core.values.errors import IllegalTransition
from runtime.core.values.ids import make_call_id, make_turn_key, parse_turn
from runtime.core.values.texts import clean_text
from runtime.core.values.verdicts import VERDICTS

_STATE = attrgetter("state")
_NEW_CALL = Call(id="", tool="", args=None)  # copying it is faster than making another one
# The field that follows the type of an event in the table of transitions.
_DETAILS: dict[type, str] = {
    events.GateOpened: "kind",
    events.GateDecided: "verdict",
    events.WaitEnded: "outcome",
    events.OutcomeArrived: "outcome",
    events.FrameClosed: "outcome",
}
# A frame works on a call of its parent.
CallChange = events.CallEvent | events.WaitEvent | events.FrameOpened | events.FrameClosed
_OF_CHILD = frozenset({events.FrameOpened, events.FrameClosed})


def change_call(now: Continuation, event: events.CallEvent | events.WaitEvent) -> Continuation:
    """Return the continuation after an event of a call. Raises IllegalTransition or UnknownSubject."""
    assert event.call is not None  # gates without a call are the frame's
    frame = now.frames.get(event.frame) or now.frame(event.frame)
    before = frame.find(event.call)
    call = call_after(before, event)
    match event:
        case events.CallRefused():
            now, frame = count_refusal(now, frame)
        case events.GateOpened():
            if event.kind.is_approval:
                frame, call = revise(frame, call)
            now = gates.add_gate(now, event, call.tool)
        case events.GateDecided():
            now = gates.remove_gate(now, event)
            if event.stands and call.terms is not None:
                apart = find_item(now, frame) is not None
                denial = make_denial(call.tool, call.id, event, apart=apart)
                now = replace(now, denials={**now.denials, call.terms.digest: denial})
            now = remember_edit(now, before, event)
            frame = remember_changes(frame, before, event)
        case events.GateClosed():
            now = gates.remove_gate(now, event)
        case events.ToolReturned():
            frame = frames.keep_plan(frame, call)
        case events.OutcomeArrived():
            now = gates.settle_gate(now, event)
        case events.WaitEnded() if event.by:
            now = add_people(now, event.by)
        case _:
            pass
    return with_call(now, frame, call)


def call_after(call: Call, event: CallChange) -> Call:
    """Return the call after an event, which may change more than the call. Raises IllegalTransition."""
    detail = _DETAILS.get(type(event))
    trigger = f"{event.type}:{getattr(event, detail)}" if detail else event.type
    frame = event.frame
    if type(event) in _OF_CHILD:
        frame = frame.removesuffix(f".{call.id}")
    state = look_up_next_state(CALLS, call.state, trigger, subject=f"{frame}/{call.id}")
    if state in SETTLED and (call.preview or call.shown or call.revises or call.credential):
        call = replace(call, preview=None, shown=None, revises=None, credential="")
    match event:
        case events.CallAdmitted():
            return replace(call, state=state, terms=event.terms)
        case events.ToolStarted():
            require_attempt(call, event.attempt, call.attempt + 1)
            return replace(
                call, state=state, attempt=event.attempt, started_at=event.at, preview=None
            )
        case events.ToolReturned():
            require_attempt(call, event.attempt, call.attempt)
            return replace(call, state=state, result=event.result, stored=event.stored)
        case events.ToolFailed():
            require_attempt(call, event.attempt, call.attempt)
            return replace(call, state=state, result=event.error)
        case events.CallPreviewed():
            return replace(call, state=state, preview=event.preview)
        case events.CallRefused():
            return replace(call, state=state, result=event.reason)
        case events.GateOpened():
            preview = call.preview if event.kind.is_approval else None
            return replace(
                call, state=state, terms=event.terms, gate=event.gate, preview=None, shown=preview
            )
        case events.GateDecided():
            return _apply_verdict(replace(call, state=state), event)
        case events.GateClosed():
            return replace(call, state=state)
        case events.OutcomeUnknown():
            require_attempt(call, event.attempt, call.attempt)
            return replace(call, state=state, gate=None, until=None)  # its approval is used up
        case events.OutcomeArrived():
            require_attempt(call, event.attempt, call.attempt)
            result = event.result if event.outcome == "returned" else event.error
            return replace(call, state=state, result=result, stored=event.stored)
        case events.RetryScheduled():
            require_attempt(call, event.attempt, call.attempt)
            failures = call.failures + (event.cause == "error")
            needs = event.error if event.cause == "credential" else ""
            return replace(
                call, state=state, failures=failures, until=event.until, credential=needs
            )
        case events.WaitStarted():
            return replace(call, state=state, until=event.until, started_at=event.at)
        case events.WaitEnded(outcome="again"):
            return replace(call, state=state, until=None)
        case events.WaitEnded():
            return replace(call, state=state, until=None, result=event.result)
        case events.FrameOpened():
            return replace(call, state=state, frame=event.frame)
        case events.FrameClosed():
            return replace(call, state=state, result=event.content)
        case _ as never:
            assert_never(never)


def with_call(now: Continuation, frame: Frame, call: Call) -> Continuation:
    """Return the continuation with this call in the frame.

    If it was the last of its turn, the model gets the results. A released answer ends the frame instead, unless people
    wrote meanwhile: the model reads that first.
    """
    frame = frame.with_call(call)
    calls = frame.list_turn_calls() if call.state in SETTLED else ()
    if calls and SETTLED.issuperset(map(_STATE, calls)):
        first = calls[0]
        answers = len(calls) == 1 and first.terms is not None and first.terms.answers
        releases = (
            answers and first.state == "returned" and not frames.list_undelivered(now, frame.id)
        )
        trigger = "TurnSettled:answer" if releases else "TurnSettled"
        state = look_up_next_state(FRAMES, frame.state, trigger, subject=frame.id)
        messages = (*frame.messages, frames.make_results_message(calls))
        outcome = first.result if releases else frame.outcome
        frame = replace(frame, state=state, messages=messages, outcome=outcome)
    return replace(now, frames={**now.frames, frame.id: frame})


def propose_calls(event: events.ModelReplied, turn: int) -> tuple[Call, ...]:
    """Return the calls of a reply, which is that of this turn."""
    calls = [
        replace(_NEW_CALL, id=make_call_id(turn, index), tool=proposal.tool, args=proposal.args)
        for index, proposal in enumerate(event.calls)
    ]
    if event.given_by:
        calls = [mark_given(call, event.given_by) for call in calls]
    return tuple(calls)


def _apply_verdict(call: Call, event: events.GateDecided) -> Call:
    rule = VERDICTS[event.verdict]
    if rule.carries == "edit":
        return edit_call(call, event)
    if rule.carries == "result":
        return replace(
            call,
            result=event.result,
            stored=event.stored,
            answered=rule.before_call,
            reported_by=event.by,
        )
    if rule.starts_call:
        return call
    return replace(call, result=event.reason, verdict=event.verdict if rule.in_result else None)


# Denials and refused calls are counted for the whole run, or for one item of a list, which they end instead of the run.
# The frame of an item works apart from the others: its model never learns what people decided about them.


def make_denial(tool: str, call: str, event: events.GateDecided, *, apart: bool) -> Denial:
    """Return the denial of a call of `tool`; `apart` is one of an item of a list.

    Such a denial and a request for changes do not count towards the end of the run.
    """
    changes = VERDICTS[event.verdict].asks_again
    return Denial(
        tool=tool,
        turn=make_turn_key(event.frame, call),
        reason=event.reason,
        counts=not (changes or apart),
        changes=changes,
    )


def describe_too_many_denials(denials: Iterable[Denial]) -> str:
    """Word the end of a run or item in which people denied one tool in too many turns; empty if they did not.

    Parallel calls count once: the model learns of a denial only when its turn has ended.
    """
    turns: dict[str, dict[str, str]] = {}
    for denial in denials:
        turns.setdefault(denial.tool, {})[denial.turn] = denial.reason
    for tool, reasons in turns.items():
        if len(reasons) >= MAX_DENIALS:
            last = list(reasons.values())[-1]
            return clean_text(f"{tool} was denied in {len(reasons)} turns, last because: {last}")
    return ""


def find_item(now: Continuation, frame: Frame) -> Frame | None:
    """Return the innermost item that the frame works on, perhaps itself; None if it is part of none."""
    item: Frame | None = frame
    while item is not None and not item.item:
        item = None if item.parent is None else now.frames.get(item.parent)
    return item


def count_refusal(now: Continuation, frame: Frame) -> tuple[Continuation, Frame]:
    """Count a refused call of the frame. Return the run, and the frame, which may have the count."""
    item = find_item(now, frame)
    if item is None:
        return replace(now, refusals=now.refusals + 1), frame
    counted = replace(item, refusals=item.refusals + 1)
    return (now, counted) if item is frame else (now.with_frame(counted), frame)


def explain_item_end(now: Continuation, frame: Frame) -> str:
    """Return why the model of a frame is called no more; empty if it is."""
    item = find_item(now, frame)
    if item is None:
        return ""
    if item.refusals >= MAX_REFUSALS:
        return clean_text(f"{item.refusals} calls of this item that could not be made")
    below = (f"{item.id}/", f"{item.id}.")
    return describe_too_many_denials(
        denial
        for denial in now.denials.values()
        if not denial.changes and denial.turn.startswith(below)
    )


# Revisions: a person requested changes to a call, and the agent proposes it again. The next call of the same tool in
# the same frame for which a gate opens, in a later turn, is the revision. Several requests are revised in their order.


def find_revision(frame: Frame, call: Call) -> Revision | None:
    """Return what the call revises, or would if its gate opened now; None if it is a first proposal."""
    if call.revises is not None or not frame.to_revise:
        return call.revises
    earlier = _find_call_to_revise(frame, call)
    return None if earlier is None else Revision(gate=earlier.gate, number=earlier.number + 1)


def revise(frame: Frame, call: Call) -> tuple[Frame, Call]:
    """Return frame and call after a gate has opened for the call, which then revises the earlier one."""
    earlier = _find_call_to_revise(frame, call) if call.revises is None else None
    if earlier is None:
        return frame, call
    remaining = tuple(revision for revision in frame.to_revise if revision != earlier)
    return replace(frame, to_revise=remaining), replace(call, revises=find_revision(frame, call))


def remember_changes(frame: Frame, call: Call, event: events.GateDecided) -> Frame:
    """Return the frame that knows that a person requested changes to the call, if the event says so."""
    if not VERDICTS[event.verdict].asks_again:
        return frame
    number = 1 if call.revises is None else call.revises.number
    request = ToRevise(tool=call.tool, call=call.id, gate=event.gate, number=number)
    return replace(frame, to_revise=(*frame.to_revise, request))


def _find_call_to_revise(frame: Frame, call: Call) -> ToRevise | None:
    turn = parse_turn(call.id)
    earlier = (
        old for old in frame.to_revise if old.tool == call.tool and parse_turn(old.call) < turn
    )
    return next(earlier, None)


# Edits: a person approved a call with other arguments than its model had proposed. The call keeps both. The preview of
# the edited call, which the person saw, takes the place of the one at the gate. Without it the call is asked again,
# because no person saw the consequences of these arguments. A later call with the digest of the replaced action is
# asked again, even if policy would not ask.


def edit_call(call: Call, event: events.GateDecided) -> Call:
    """Return the call with the arguments of the edit. Raises IllegalTransition if the event has none."""
    if event.edit is None or call.terms is None:
        raise IllegalTransition("Call", "without an edit", f"{event.type}:{event.verdict}", call.id)
    edited = Edited(by=event.by, proposed=call.proposed)
    first = undo_edit(call)
    if first.edited is not None:  # a person of a fork gave them
        edited = dataclasses.replace(edited, given=first.args, given_by=first.edited.by)
    preview, digest = call.shown, event.edit.digest
    if event.edit.preview is not None:
        preview = dataclasses.replace(event.edit.preview, digest=digest)
    terms = dataclasses.replace(call.terms, digest=digest)
    return replace(call, args=event.edit.args, terms=terms, edited=edited, shown=preview)


def mark_given(call: Call, by: str) -> Call:
    """Return a call of a reply that this person gave in a fork. Another person is always asked about it."""
    return replace(call, edited=Edited(by=by, proposed=call.args, in_fork=True))


def remember_edit(now: Continuation, call: Call, event: events.GateDecided) -> Continuation:
    """Return the state that knows the replaced action of `call`, as it was before the decision."""
    if VERDICTS[event.verdict].carries != "edit" or call.terms is None:
        return now
    return replace(now, edits={**now.edits, call.terms.digest: event.by})


def undo_edit(call: Call) -> Call:
    """Return the call as its model proposed it, or as a person gave it in a fork."""
    if call.edited is None or call.edited.in_fork:
        return call
    if not call.edited.of_fork:
        return replace(call, args=call.proposed, edited=None)
    edit = Edited(by=call.edited.given_by, proposed=call.proposed, in_fork=True)
    return replace(call, args=call.edited.given, edited=edit)

"""Continues a run elsewhere or again: forks, exports and imports, and failed runs that a person tries again.

A fork or an imported run keeps the recorded results, messages and frames. It keeps no permission: an admitted, approved
or waiting call is checked again. Idempotency keys contain the run's id, so the calls of a fork are new outside.
"""

import dataclasses
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, assert_never

from pydantic import TypeAdapter, ValidationError

from runtime.core.run.calls import undo_edit
from runtime.core.run.continuation import (
    Call,
    Continuation,
    Denial,
    Edited,
    Frame,
    FrameState,
    GivenReply,
    Phase,
    Undelivered,
    add_people,
    merge_people,
    replace,
)
from runtime.core.run.events import (
    Event,
    Exported,
    ForkChange,
    Forked,
    Imported,
    ModelReplied,
    Retried,
    TravelEvent,
)
from runtime.core.run.frames import make_call_result
from runtime.core.run.transitions import CALLS, FRAMES, look_up_next_state
from runtime.core.values.enums import EFFECT_CLASSES, CallState
from runtime.core.values.errors import IllegalTransition, Unreadable

BEFORE_REPLY = frozenset({FrameState.ASKING, FrameState.RETRYING})
_AFTER_CALLS = BEFORE_REPLY | {FrameState.ACTING}
_HAS_OUTCOME = frozenset({CallState.RETURNED, CallState.FAILED})
_PERMITTED = frozenset({CallState.ADMITTED, CallState.GATED, CallState.RETRYING, CallState.WAITING})

_STATES: TypeAdapter[Continuation] = TypeAdapter(Continuation)


def is_quiescent(now: Continuation) -> bool:
    """Return whether this state can be forked: no effect is running or may have happened unnoticed.

    The run must be live, without a started call, and without an idempotent call that waits for a repetition. Its
    first attempt may have happened, and the fork's key would not recognise it. A call in doubt is allowed, because
    people are asked about it again.
    """
    if now.phase is not Phase.STARTED:
        return False
    for frame in now.frames.values():
        for call in frame.calls:
            if call.state is CallState.STARTED:
                return False
            again = call.state in _PERMITTED and call.attempt > 0
            if again and call.terms and EFFECT_CLASSES[call.terms.effect].needs_same_key:
                return False
    return True


def fork_document(now: Continuation) -> dict[str, Any]:
    """Return the first state of a fork as JSON: see `without_permissions`."""
    document: dict[str, Any] = _STATES.dump_python(
        without_permissions(now), mode="json", exclude_defaults=True
    )
    return document


def read_fork(event: Forked) -> Continuation:
    """Read the first state of a fork. Raises Unreadable."""
    try:
        return _STATES.validate_python(event.state)
    except ValidationError as exc:
        raise Unreadable(f"not a state to fork from: {exc}") from exc


def without_permissions(now: Continuation) -> Continuation:
    """Return the state without permissions, gates and pause, so that no call may start.

    Admitted, approved, waiting and retrying calls are proposed again, with their model's arguments. If people allowed a
    `write` with an unknown outcome to run again, it is in doubt again. Budgets and their usage stay.
    """
    frames = {
        # The requests for changes are those of the other run.
        name: replace(frame, calls=tuple(map(_without_permission, frame.calls)), to_revise=())
        for name, frame in now.frames.items()
    }
    return replace(
        now, frames=frames, pending=(), questions=(), paused=None, short=None, ticking=None
    )


def apply_transfer(now: Continuation, event: TravelEvent, phase: Phase) -> Continuation:
    """Return the state after one of these events, in `phase`. Raises IllegalTransition or Unreadable.

    A fork copies its state into the run `now`, which keeps its id, position, requester, business key and thread. Its
    origin joins that of the copied run. It remembers what that one remembers.
    """
    match event:
        case Forked():
            if now.frames:
                raise IllegalTransition("Run", "under way", event.type, str(now.run))
            state = read_fork(event)
            return replace(
                state,
                run=now.run,
                position=now.position,
                head=now.head,
                requester=now.requester,
                origin=merge_people(
                    [state.requester], state.origin, state.reviewers, now.origin, [event.by]
                ),
                reviewers=(),
                business_key=now.business_key,
                thread=now.thread,
            )
        case Exported():
            return replace(now, phase=phase, pending=(), questions=())
        case Imported():
            return add_people(
                replace(without_permissions(now), phase=phase, requester=event.by), event.by
            )
        case _ as never:
            assert_never(never)


def _without_permission(call: Call) -> Call:
    in_doubt = call.state is CallState.UNKNOWN
    if call.terms is not None and not EFFECT_CLASSES[call.terms.effect].repeats_unasked:
        # A `write` that was attempted more often than it failed had an unknown outcome.
        if call.state is CallState.RETRYING:
            in_doubt = call.attempt > call.failures
        elif call.state in (CallState.ADMITTED, CallState.GATED):
            in_doubt = call.attempt > 0
    if in_doubt:
        return replace(call, state=CallState.UNKNOWN, gate=None, until=None)
    if call.state in _PERMITTED:
        first = undo_edit(call)
        return Call(id=call.id, tool=call.tool, args=first.args, edited=first.edited)
    return call


# A person may change one value in a fork: an undelivered message, a result of the last turn, arguments, or a reply. The
# value is marked as theirs. Arguments replace those of a call that has not started; the call keeps those that its model
# proposed, and a person is always asked about it. A reply takes the place of the next one of a frame's model, which is
# not called for it. A call that the original made is not made again.


def list_changeable(now: Continuation) -> Iterator[tuple[ForkChange, Any]]:
    """Yield what a person may change in this first state of a fork, each with its present value: a reply has none."""
    for number, message in enumerate(now.unheard, 1):
        yield ForkChange(kind="message", number=number), message.text
    for frame in now.frames.values():
        if frame.state not in _AFTER_CALLS:
            continue
        if frame.state in BEFORE_REPLY:
            yield ForkChange(kind="reply", frame=frame.id), None
        for call in frame.list_turn_calls():
            keeps_plan = call.terms is not None and call.terms.plan
            # A tool made the call, and its result is a value for the model alone.
            if call.state in _HAS_OUTCOME and call.frame is None and not keeps_plan:
                yield _change_call("result", frame, call), call.stored or call.result
            elif call.state is CallState.PROPOSED and isinstance(call.args, dict):
                yield _change_call("arguments", frame, call), call.args


def find_next_reply(events: Iterable[Event], frame: str) -> GivenReply | None:
    """Return the first reply of this frame's model among these events, a typed answer as JSON; None without one."""
    for event in events:
        if isinstance(event, ModelReplied) and event.frame == frame:
            value = event.output
            text = event.text if value is None else json.dumps(value, ensure_ascii=False, indent=2)
            return GivenReply(by=event.given_by, text=text, calls=event.calls)
    return None


def list_replies(events: Sequence[Event]) -> list[tuple[int, str]]:
    """Return the replies among these events: the index and the frame of each."""
    return [(at, event.frame) for at, event in enumerate(events) if isinstance(event, ModelReplied)]


def change_value(now: Continuation, change: ForkChange, value: Any, by: str) -> Continuation:
    """Return the state with `value`, given by this person. The caller has found the change among the changeable.

    That of a reply is a GivenReply by the person.
    """
    if change.kind == "message":
        unheard = list(now.unheard)
        unheard[change.number - 1] = Undelivered(by=by, text=value)
        return replace(now, unheard=tuple(unheard))
    frame = now.frame(change.frame)
    if change.kind == "reply":
        asking = replace(frame, state=FrameState.ASKING, until=None, outage=None, given=value)
        return now.with_frame(asking)
    call = frame.find(change.call)
    if change.kind == "arguments":
        edited = Edited(by=by, proposed=call.proposed, in_fork=True)
        return now.with_frame(frame.with_call(replace(call, args=value, edited=edited)))
    call = replace(
        call,
        state=CallState.RETURNED,
        result=value,
        stored=None,
        reported_by=None,
        answered=False,
        verdict=None,
        changed_by=by,
    )
    frame = frame.with_call(call)
    if frame.messages and frame.messages[-1].get("role") == "results":  # the turn has ended
        *earlier, last = frame.messages
        results = [
            make_call_result(call) if old["call"] == call.id else old for old in last["results"]
        ]
        frame = replace(frame, messages=(*earlier, {**last, "results": results}))
    return now.with_frame(frame)


def _change_call(kind: Literal["result", "arguments"], frame: Frame, call: Call) -> ForkChange:
    return ForkChange(kind=kind, frame=frame.id, call=call.id)


# A failed run continues from where it failed, and no effect is repeated. Results, messages, used approvals, denials and
# spending stay. Refusals and denials are counted anew. A frame whose model failed asks it again. A call that was closed
# with the run is checked again, so people are asked again, about the arguments that its model proposed. If an attempt
# at it may have had its effect, it is in doubt.


def restore_failed(now: Continuation, event: Retried, phase: Phase) -> Continuation:
    """Restore the failed run, in `phase`."""
    frames = {}
    for name, frame in now.left.items():
        restored = replace(frame, calls=tuple(restore_call(call, event) for call in frame.calls))
        if frame.state is FrameState.FAILED:
            restored = replace(
                restored,
                state=look_up_next_state(FRAMES, frame.state, event.type, subject=frame.id),
                attempt=frame.attempt + 1,
                failures=0,
                model="",
                ticket=0,
                outage=None,
                outcome=None,
            )
        frames[name] = restored
    return replace(
        now,
        phase=phase,
        frames=frames,
        left={},
        outcome=None,
        refusals=0,
        denials=uncount_denials(now.denials),
        cancelled_by="",
    )


def uncount_denials(denials: dict[str, Denial]) -> dict[str, Denial]:
    """Return the denials of a run that is tried again: they stand, but no longer count towards its end."""
    return {digest: dataclasses.replace(denial, counts=False) for digest, denial in denials.items()}


def restore_call(call: Call, event: Retried) -> Call:
    """Return a closed call in the state in which it is tried again, another call unchanged."""
    if call.state is not CallState.CLOSED:
        return call
    in_doubt = call.attempt > call.failures  # the last attempt may have had its effect
    trigger = f"{event.type}:in_doubt" if in_doubt else event.type
    state = look_up_next_state(CALLS, call.state, trigger, subject=call.id)
    call = replace(call, state=state, gate=None, until=None, result=None)
    return call if in_doubt else undo_edit(call)

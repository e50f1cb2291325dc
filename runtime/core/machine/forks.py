"""Going on elsewhere from a state: what of it is taken along, and what is asked anew.

A fork, and a run that comes from another installation, take over what was recorded: results, messages,
frames. They take over no permission: a call that was judged, approved or waiting is judged again. Tools
are handed keys that contain the run's id, so what a fork starts is new to whoever honours such keys.
"""

from typing import Any, assert_never

from pydantic import TypeAdapter, ValidationError

from runtime.core.continuation import Call, CallState, Continuation, Frame, Phase
from runtime.core.effect_classes import RULES
from runtime.core.errors import IllegalTransition, Unreadable
from runtime.core.events import Exported, Forked, Imported, TravelEvent
from runtime.core.fast_replace import replace
from runtime.core.machine.origin import joined, merged

_PERMITTED = frozenset({CallState.ADMITTED, CallState.GATED, CallState.RETRYING, CallState.WAITING})
_STATES: TypeAdapter[Continuation] = TypeAdapter(Continuation)


def quiescent(now: Continuation) -> bool:
    """Whether a fork may go on from here: no effect of this state is under way or may have happened unseen.

    The run is at work and not being ended; no call is started; and no idempotent call was started before and
    is to be started again: its first start may have happened, and a fork's key would not recognise it. A call
    in doubt is allowed, since people are asked about it again.
    """
    if now.phase is not Phase.STARTED:
        return False
    return not any(_holds_on(call) for frame in now.frames.values() for call in frame.calls)


def forked(now: Continuation) -> dict[str, Any]:
    """What a fork of this state begins with, as JSON: see `released`."""
    document: dict[str, Any] = _STATES.dump_python(
        released(now), mode="json", exclude_defaults=True
    )
    return {"schema": now.schema, **document}


def state_of(event: Forked) -> Continuation:
    """The state that a fork begins with, as it was in the original. Raises Unreadable."""
    try:
        return _STATES.validate_python(event.state)
    except ValidationError as exc:
        raise Unreadable(f"not a state to fork from: {exc}") from exc


def released(now: Continuation) -> Continuation:
    """The same state without its permissions and its pause: nobody is asked yet, and no call may start.

    Calls that were admitted, approved, waiting or to be tried again are proposed again. A `write` that
    people allowed to run again after nobody knew what became of it is in doubt again. Budgets, and what was
    used of them, stay.
    """
    frames = {name: _released(frame) for name, frame in now.frames.items()}
    return replace(now, frames=frames, pending=(), paused=None, short=None, ticking=None)


def travelled(now: Continuation, event: TravelEvent, phase: Phase) -> Continuation:
    """The state after one of these events, which leads to `phase`. Raises IllegalTransition or Unreadable."""
    match event:
        case Forked():
            return _adopted(now, event)
        case Exported():
            return replace(now, phase=phase, pending=())
        case Imported():
            return joined(replace(released(now), phase=phase, requester=event.by), event.by)
        case _ as never:
            assert_never(never)


def _adopted(now: Continuation, event: Forked) -> Continuation:
    """Copy the state into the run `now`, which keeps its id, position, requester and business key.

    Its origin joins that of the copied run.
    """
    if now.frames:
        raise IllegalTransition("Run", "under way", event.type, str(now.run))
    state = state_of(event)
    return replace(
        state,
        run=now.run,
        position=now.position,
        head=now.head,
        requester=now.requester,
        origin=merged([state.requester], state.origin, now.origin, [event.by]),
        business_key=now.business_key,
    )


def _released(frame: Frame) -> Frame:
    return replace(frame, calls=tuple(_without_permission(call) for call in frame.calls))


def _without_permission(call: Call) -> Call:
    if call.state is CallState.UNKNOWN or _was_in_doubt(call):
        return replace(call, state=CallState.UNKNOWN, gate=None, until=None)
    if call.state in _PERMITTED:
        return Call(id=call.id, tool=call.tool, args=call.args)
    return call


def _was_in_doubt(call: Call) -> bool:
    """Only people bring a started `write` back, unless its tool said of every attempt that nothing was done."""
    if call.terms is None or RULES[call.terms.effect].repeats_unasked:
        return False
    if call.state is CallState.RETRYING:
        return call.attempt > call.failures
    return call.state in (CallState.ADMITTED, CallState.GATED) and call.attempt > 0


def _holds_on(call: Call) -> bool:
    if call.state is CallState.STARTED:
        return True
    again = call.state in _PERMITTED and call.attempt > 0
    return again and call.terms is not None and RULES[call.terms.effect].needs_same_key

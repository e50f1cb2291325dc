"""Applies forks, exports and imports to a state: copies results, and removes permissions.

A fork or an imported run keeps the recorded results, messages and frames. It keeps no permission: an admitted, approved
or waiting call is checked again. Idempotency keys contain the run's id, so the calls of a fork are new outside.
"""

from typing import Any, assert_never

from pydantic import TypeAdapter, ValidationError

from runtime.core.call_states import CallState
from runtime.core.continuation import Call, Continuation, Frame, Phase
from runtime.core.effect_classes import RULES
from runtime.core.errors import IllegalTransition, Unreadable
from runtime.core.events import Exported, Forked, Imported, TravelEvent
from runtime.core.fast_replace import replace
from runtime.core.machine.calls.edits import unedited
from runtime.core.machine.origin import joined, merged

_PERMITTED = frozenset({CallState.ADMITTED, CallState.GATED, CallState.RETRYING, CallState.WAITING})
_STATES: TypeAdapter[Continuation] = TypeAdapter(Continuation)


def quiescent(now: Continuation) -> bool:
    """Return whether this state can be forked: no effect is running or may have happened unnoticed.

    The run must be live, without a started call, and without an idempotent call that waits for a repetition. Its
    first attempt may have happened, and the fork's key would not recognise it. A call in doubt is allowed, because
    people are asked about it again.
    """
    if now.phase is not Phase.STARTED:
        return False
    return not any(_prevents_fork(call) for frame in now.frames.values() for call in frame.calls)


def forked(now: Continuation) -> dict[str, Any]:
    """Return the first state of a fork as JSON: see `without_permissions`."""
    document: dict[str, Any] = _STATES.dump_python(
        without_permissions(now), mode="json", exclude_defaults=True
    )
    return document


def state_of(event: Forked) -> Continuation:
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
    frames = {name: _without_permissions_of(frame) for name, frame in now.frames.items()}
    return replace(
        now, frames=frames, pending=(), questions=(), paused=None, short=None, ticking=None
    )


def apply_transfer(now: Continuation, event: TravelEvent, phase: Phase) -> Continuation:
    """Return the state after one of these events, in `phase`. Raises IllegalTransition or Unreadable."""
    match event:
        case Forked():
            return _apply_fork(now, event)
        case Exported():
            return replace(now, phase=phase, pending=(), questions=())
        case Imported():
            return joined(
                replace(without_permissions(now), phase=phase, requester=event.by), event.by
            )
        case _ as never:
            assert_never(never)


def _apply_fork(now: Continuation, event: Forked) -> Continuation:
    """Copy the state into the run `now`, which keeps its id, position, requester, business key and thread.

    Its origin joins that of the copied run. It remembers what that one remembers.
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
        origin=merged([state.requester], state.origin, state.reviewers, now.origin, [event.by]),
        reviewers=(),
        business_key=now.business_key,
        thread=now.thread,
    )


def _without_permissions_of(frame: Frame) -> Frame:
    calls = tuple(_without_permission(call) for call in frame.calls)
    return replace(frame, calls=calls, to_revise=())  # their requests are those of the other run


def _without_permission(call: Call) -> Call:
    if call.state is CallState.UNKNOWN or _was_in_doubt(call):
        return replace(call, state=CallState.UNKNOWN, gate=None, until=None)
    if call.state in _PERMITTED:
        first = unedited(call)
        return Call(id=call.id, tool=call.tool, args=first.args, edited=first.edited)
    return call


def _was_in_doubt(call: Call) -> bool:
    """Return whether a `write` was started with an unknown outcome: it was attempted more often than it failed."""
    if call.terms is None or RULES[call.terms.effect].repeats_unasked:
        return False
    if call.state is CallState.RETRYING:
        return call.attempt > call.failures
    return call.state in (CallState.ADMITTED, CallState.GATED) and call.attempt > 0


def _prevents_fork(call: Call) -> bool:
    if call.state is CallState.STARTED:
        return True
    again = call.state in _PERMITTED and call.attempt > 0
    return again and call.terms is not None and RULES[call.terms.effect].needs_same_key

"""The open gates of a run: added when they open, removed when they are decided or closed."""

from uuid import UUID

from runtime.core.continuation import Continuation, Pending
from runtime.core.errors import IllegalTransition, UnknownSubject
from runtime.core.events import GateClosed, GateDecided, GateOpened, OutcomeArrived
from runtime.core.fast_replace import replace


def add(now: Continuation, event: GateOpened, tool: str = "") -> Continuation:
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


def settle(now: Continuation, event: OutcomeArrived) -> Continuation:
    """Remove the in-doubt gate of the call. Raise UnknownSubject unless the event names it."""
    asked = of_call(now, event.frame, event.call)
    if event.gate != (None if asked is None else asked.gate):
        raise UnknownSubject("open gate", str(event.gate))
    return now if asked is None else _without(now, event.gate)


def of_call(now: Continuation, frame: str, call: str) -> Pending | None:
    """Return the open gate of a call, None without one."""
    return next((one for one in now.pending if (one.frame, one.call) == (frame, call)), None)


def drop(now: Continuation, event: GateDecided | GateClosed) -> Continuation:
    """Remove the gate with its questions. Raises UnknownSubject if it is not open at that place."""
    place = (event.gate, event.frame, event.call)
    if all((one.gate, one.frame, one.call) != place for one in now.pending):
        raise UnknownSubject("open gate", str(event.gate))
    return _without(now, event.gate)


def _without(now: Continuation, gate: UUID | None) -> Continuation:
    now = replace(now, pending=tuple(one for one in now.pending if one.gate != gate))
    if not now.questions:
        return now
    return replace(now, questions=tuple(one for one in now.questions if one.gate != gate))

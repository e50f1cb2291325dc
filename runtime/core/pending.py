"""The gates that a run waits at: one comes in when it opens, and leaves when it is decided or closed."""

from runtime.core.continuation import Continuation, Pending
from runtime.core.errors import IllegalTransition, UnknownSubject
from runtime.core.events import GateClosed, GateDecided, GateOpened
from runtime.core.replacing import replace


def add(now: Continuation, event: GateOpened, tool: str = "") -> Continuation:
    """With the gate. `tool` is that of its call. Raises IllegalTransition if it is open already."""
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


def drop(now: Continuation, event: GateDecided | GateClosed) -> Continuation:
    """Without the gate. Raises UnknownSubject if it is not open at that place."""
    rest = tuple(
        pending
        for pending in now.pending
        if (pending.gate, pending.frame, pending.call) != (event.gate, event.frame, event.call)
    )
    if len(rest) == len(now.pending):
        raise UnknownSubject("open gate", str(event.gate))
    return replace(now, pending=rest)

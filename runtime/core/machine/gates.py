"""Gates of a frame: while one is open, no new effect starts in the frame.

A hold and a version gate block their frame. A limit gate blocks the whole run, because budgets are the run's. Running
effects finish, and their outcomes are recorded.
"""

from runtime.core.continuation import Continuation, Frame
from runtime.core.enums import GateKind, Verdict
from runtime.core.errors import IllegalTransition, UnknownSubject
from runtime.core.events import GateClosed, GateDecided, GateOpened
from runtime.core.fast_replace import replace
from runtime.core.machine import pending
from runtime.core.machine.transitions import FRAMES, next_state
from runtime.core.verdicts import FRAME_GATES


def is_frame_gate(event: GateOpened | GateDecided | GateClosed) -> bool:
    """Say whether the gate belongs to a frame, not to a call."""
    return not event.call


def is_blocked_by_gate(now: Continuation, frame: str) -> bool:
    """Say whether an open gate blocks this frame."""
    return bool(now.pending) and any(
        gate.kind is GateKind.LIMIT or (gate.kind in FRAME_GATES and gate.frame == frame)
        for gate in now.pending
    )


def evolve_frame_gate(
    now: Continuation, event: GateOpened | GateDecided | GateClosed
) -> Continuation:
    """Return the continuation after an event of a frame's gate. Raises IllegalTransition or UnknownSubject."""
    frame = now.frame(event.frame)
    match event:
        case GateOpened():
            _require_one(now, event)
            next_state(FRAMES, frame.state, f"{event.type}:{event.kind}", subject=frame.id)
            return pending.add(now, event).with_frame(_opened(frame, event))
        case GateDecided():
            kind = _kind(now, event)
            trigger = f"{event.type}:{event.verdict}"
            next_state(FRAMES, frame.state, trigger, subject=frame.id)
            return pending.drop(now, event).with_frame(_decided(frame, event, kind))
        case GateClosed():
            next_state(FRAMES, frame.state, event.type, subject=frame.id)
            return pending.drop(now, event)


def _opened(frame: Frame, event: GateOpened) -> Frame:
    return replace(frame, cleared_at=event.at) if event.kind is GateKind.HOLD else frame


def _decided(frame: Frame, event: GateDecided, kind: GateKind) -> Frame:
    goes_on = kind is GateKind.HOLD and event.verdict is Verdict.CONTINUE
    if goes_on and any(call.credential for call in frame.calls):
        calls = (replace(call, credential="") if call.credential else call for call in frame.calls)
        return replace(frame, calls=tuple(calls))
    return replace(frame, cleared=frame.turn, outage=None) if goes_on else frame


def _require_one(now: Continuation, event: GateOpened) -> None:
    """Raise IllegalTransition if the frame already has an open gate of this kind."""
    if event.kind not in FRAME_GATES:
        raise IllegalTransition("Gate", "without a call", event.type, str(event.gate))
    if any((gate.frame, gate.kind) == (event.frame, event.kind) for gate in now.pending):
        raise IllegalTransition("Gate", f"{event.kind} is open", event.type, event.frame)


def _kind(now: Continuation, event: GateDecided) -> GateKind:
    for gate in now.pending:
        if gate.gate == event.gate:
            return gate.kind
    raise UnknownSubject("open gate", str(event.gate))

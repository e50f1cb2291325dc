"""Events of a small run, with what most tests do not care about filled in."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from runtime.core.run.continuation import Continuation, Frame
from runtime.core.run.events import (
    CallAdmitted,
    Event,
    FrameOpened,
    ModelReplied,
    Proposal,
    RunStarted,
    ToolStarted,
)
from runtime.core.run.reducer import fold, make_initial_state
from runtime.core.values.call_options import CallOptions
from runtime.core.values.enums import EffectClass

AT = datetime(2026, 1, 1, tzinfo=UTC)
TERMS = CallOptions(effect=EffectClass.WRITE, digest="sha256:d", deadline=30.0)


def begun(**more: Any) -> RunStarted:
    return RunStarted(**{"agent": "a", "input": {}, "requester": "ada"} | more)


def opened(frame: str = "0", **more: Any) -> FrameOpened:
    """A frame that opens for the call which its id names."""
    parent, _, call = frame.rpartition(".c")
    known: dict[str, Any] = {"agent": "a", "fingerprint": "f", "prompt": "p"}
    known |= {
        "plan": None,
        "input": {},
        "parent": parent or None,
        "call": f"c{call}" if parent else None,
    }
    return FrameOpened(frame=frame, **known | more)


def replied(*tools: str, frame: str = "0", **more: Any) -> ModelReplied:
    """A reply with these calls, or the last one."""
    calls = tuple(Proposal(tool=tool, args={}) for tool in tools)
    known: dict[str, Any] = {"reply": {}, "text": "" if tools else "done", "usage": {}}
    known["calls"] = calls
    return ModelReplied(frame=frame, **known | more)


def options(effect: EffectClass = EffectClass.READ, **more: Any) -> CallOptions:
    known: dict[str, Any] = {"digest": "sha256:d", "deadline": 30.0}
    return CallOptions(effect=effect, **known | more)


def frame_of(id: str = "0", **more: Any) -> Frame:
    return Frame(id=id, **{"agent": "a", "fingerprint": "f", "prompt": "p"} | more)


STARTED: list[Event] = [
    begun(),
    opened(),
    replied("t"),
    CallAdmitted(frame="0", call="c1.0", terms=TERMS),
    ToolStarted(frame="0", call="c1.0", attempt=1, at=AT),
]


def after(*events: Event) -> Continuation:
    """A run whose root frame is open, and then these events."""
    return fold(make_initial_state(UUID(int=1)), [begun(), opened(), *events])

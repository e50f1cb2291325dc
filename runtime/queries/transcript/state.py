"""The frames and calls of a run while its journal is being folded for people: what progress changes and tree shows."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, assert_never

from runtime.core.continuation import CallState
from runtime.core.enums import EffectClass, Verdict
from runtime.core.ids import depth_of
from runtime.queries.redaction import redacted
from runtime.queries.transcript.views import (
    CallView,
    FrameView,
    Message,
    Retry,
)


@dataclass(slots=True, kw_only=True)
class CallRecord:
    id: str
    frame: str
    agent: str
    tool: str
    args: Any
    state: CallState = CallState.PROPOSED
    note: str = ""
    effect: EffectClass | None = None
    verdict: Verdict | None = None
    decided_by: str = ""
    attempt: int = 0
    started_at: datetime | None = None
    until: datetime | None = None
    lost: bool = False
    late: bool = False
    result: Any = None
    child: str | None = None


@dataclass(slots=True, kw_only=True)
class FrameRecord:
    id: str
    agent: str
    fingerprint: str
    plan: tuple[str, ...] | None
    parent: str | None
    call: str | None
    turn: int = 0
    outcome: str | None = None
    retry: Retry | None = None
    halts: int = 0
    calls: dict[str, CallRecord] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)
    heard: int = 0  # messages of people delivered to its model

    def deliver(self, count: int) -> None:
        """Mark the next `count` messages of people as delivered for the next turn."""
        places = [at for at, message in enumerate(self.messages) if message.kind == "message"]
        for at in places[self.heard : self.heard + count]:
            self.messages[at] = replace(self.messages[at], turn=self.turn)
        self.heard += count


def frame_view(frame: FrameRecord, frames: Mapping[str, FrameRecord]) -> FrameView:
    """Return a frame with everything below it."""
    return FrameView(
        id=frame.id,
        agent=frame.agent,
        fingerprint=frame.fingerprint,
        depth=depth_of(frame.id),
        plan=frame.plan,
        outcome=frame.outcome,
        retry=frame.retry if frame.outcome is None else None,
        halts=frame.halts if frame.outcome is None else 0,
        calls=tuple(_call_view(call, frames) for call in frame.calls.values()),
        messages=tuple(frame.messages),
    )


def _call_view(call: CallRecord, frames: Mapping[str, FrameRecord]) -> CallView:
    child = frames.get(call.child or "")
    return CallView(
        id=call.id,
        frame=call.frame,
        agent=call.agent,
        tool=call.tool,
        args=redacted(call.args),
        state=call.state,
        note=redacted(call.note),
        effect=call.effect,
        verdict=call.verdict,
        decided_by=call.decided_by,
        attempt=call.attempt,
        started_at=call.started_at,
        until=call.until,
        lost=call.lost,
        late=call.late,
        result=redacted(call.result),
        child=frame_view(child, frames) if child else None,
    )


def after(verdict: Verdict) -> tuple[CallState, str]:
    """Return the state of a call after a decision, and a label for the decision.

    Raises KeyError for a verdict on a frame gate, which has no call.
    """
    match verdict:
        case Verdict.APPROVE:
            return CallState.ADMITTED, "Approved"
        case Verdict.DENY:
            return CallState.DENIED, "Denied"
        case Verdict.EXPIRE:
            return CallState.DENIED, "Expired without a decision:"
        case Verdict.HAPPENED:
            return CallState.RETURNED, "Reported the outcome of"
        case Verdict.RUN_AGAIN:
            return CallState.ADMITTED, "Approved to run again"
        case Verdict.GIVE_UP:
            return CallState.FAILED, "Gave up"
        case Verdict.CONTINUE | Verdict.STOP:
            raise KeyError(verdict)
        case _:
            assert_never(verdict)

"""Makes events of a step: frames and runs that end, waits that end, and gates that are decided."""

from datetime import datetime
from typing import Any

from runtime.core.commands import OpenFrame
from runtime.core.continuation import Continuation, Frame, FrameState, Pending, Phase
from runtime.core.digest import sha256_of
from runtime.core.enums import Verdict
from runtime.core.events import (
    AllowanceUse,
    Cancelled,
    Completed,
    Failed,
    FrameClosed,
    FrameOpened,
    GateDecided,
    GateOpened,
    MessageReceived,
    WaitEnded,
)
from runtime.core.ids import ROOT
from runtime.core.limits import plain
from runtime.core.verdicts import VERDICTS
from runtime.errors import InvalidInput
from runtime.ports.agents import AgentInfo
from runtime.ports.prompts import Instructions
from runtime.store.records import waits
from runtime.store.tables.late_outcomes import LateOutcomeRow
from runtime.store.tables.signals import EventSignal, GateDecidedSignal, MessageSignal


def frame_opened(
    command: OpenFrame,
    agent_input: Any,
    instructions: Instructions,
    info: AgentInfo,
    at: datetime,
    *,
    item: bool = False,
) -> FrameOpened:
    """Return the event that opens a frame, with its input as the agent reads it. An `item` is one of a list."""
    return FrameOpened(
        frame=command.frame,
        agent=command.agent,
        fingerprint=info.fingerprint,
        prompt=sha256_of(instructions.text) if instructions.text else info.prompt,
        plan=info.plan,
        input=agent_input,
        parent=command.parent,
        call=command.call,
        model=info.model,
        at=at,
        compaction=info.compaction,
        budget=info.budget,
        rates=info.rates,
        instructions=instructions.text,
        pinned=instructions.pinned,
        item=item,
    )


def received(signal: MessageSignal) -> MessageReceived:
    """Return the event for a person's message."""
    return MessageReceived(
        by=signal.by, text=signal.text, reviewer=signal.reviewer, cuts=signal.cuts
    )


def frame_closed(frame: Frame) -> FrameClosed:
    """Return the event that closes a frame with its answer, or its failure."""
    answered = frame.state is FrameState.ANSWERED
    return FrameClosed(
        frame=frame.id,
        outcome="answered" if answered else "failed",
        content="" if frame.outcome is None else frame.outcome,
    )


def run_ended(now: Continuation) -> Completed | Failed | Cancelled:
    """Return the event that ends the run: with the answer of its root, or without."""
    if now.phase is Phase.CANCELLING:
        reason = now.outcome or ""
        return Cancelled(reason=reason) if now.cancelled_by else Failed(error=reason)
    root = now.frame(ROOT)
    if root.state is FrameState.ANSWERED:
        return Completed(output="" if root.outcome is None else root.outcome)
    return Failed(error=root.outcome or "")


def arrived(now: Continuation, signal: EventSignal) -> WaitEnded | None:
    """Return the event that ends a wait with its external event, None if the call no longer waits."""
    if now.phase is not Phase.STARTED or not waits(now, signal.frame, signal.call):
        return None
    return WaitEnded(
        frame=signal.frame,
        call=signal.call,
        outcome="arrived",
        result=signal.result,
        by=signal.by,
    )


def late_arrivals(late: LateOutcomeRow) -> str:
    """Say why a call no longer needs a person."""
    became = "returned its result" if late.outcome == "returned" else "reported its failure"
    return f"The call itself {became} late, so no person needs to settle it."


def invalid_input(agent: str, problem: InvalidInput) -> str:
    """Say why an agent cannot take its input."""
    return plain(f"{agent} does not take its input: {problem.all_of_it}")


def allowed(gate: GateOpened, use: AllowanceUse) -> GateDecided:
    """Return the decision of a gate that an allowance passes."""
    return GateDecided(
        gate=gate.gate,
        frame=gate.frame,
        call=gate.call,
        verdict=Verdict.APPROVE,
        by=use.by[-1],
        reason="",
        allowance=use,
    )


def decided(now: Continuation, pending: Pending, signal: GateDecidedSignal) -> GateDecided:
    """Return a person's decision of an open gate."""
    terms = now.call(pending.frame, pending.call).terms if pending.call else None
    return GateDecided(
        gate=pending.gate,
        frame=pending.frame,
        call=pending.call,
        verdict=signal.decision.verdict,
        by=signal.decision.by,
        reason=signal.decision.reason,
        result=signal.decision.result,
        stands=VERDICTS[signal.decision.verdict].is_remembered,
        edit=signal.decision.edit,
        answer=signal.decision.verdict is Verdict.ANSWER and terms is not None and terms.answers,
    )

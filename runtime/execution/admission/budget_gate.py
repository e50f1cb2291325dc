"""Opens limit gates, and reads the grants that people give at them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from runtime.core.budgets import ExhaustedLimit, Limit
from runtime.core.continuation import Continuation, Pending
from runtime.core.documents.budget_text import (
    InvalidBudget,
    granted,
    name_of,
    to_text,
    words_of,
)
from runtime.core.enums import Decision, GateKind, Verdict
from runtime.core.events import BudgetExceeded, BudgetGranted, GateOpened
from runtime.core.ids import ROOT
from runtime.errors import Tampered
from runtime.execution.admission.gates import AdmissionResult, open_frame_gate


def open_limit_gate(
    now: Continuation, reached: Sequence[ExhaustedLimit], at: datetime
) -> tuple[tuple[BudgetExceeded, ...], AdmissionResult]:
    """Return one gate for all exhausted limits, with an event for each limit."""
    frame = next((exhausted.frame for exhausted in reached if exhausted.frame is not None), ROOT)
    reason = "; ".join(_words(now, exhausted) for exhausted in reached)
    reason = (
        reason[0].upper() + reason[1:] if frame == ROOT and reached[0].frame is None else reason
    )
    args = {"limits": [_fact(now, exhausted) for exhausted in reached]}
    gate = open_frame_gate(now, frame, GateKind.LIMIT, reason=reason, args=args, at=at)
    assert isinstance(gate.event, GateOpened)
    exceeded = tuple(
        BudgetExceeded(
            gate=gate.event.gate,
            frame=exhausted.frame,
            limit=exhausted.limit,
            used=exhausted.used,
            allowed=exhausted.allowed,
            at=at,
        )
        for exhausted in reached
    )
    return exceeded, gate


def read_grant(now: Continuation, pending: Pending, decision: Decision) -> BudgetGranted | None:
    """Read the grant of a decision; None if it is not about a limit or ends the run. Raises Tampered."""
    if pending.kind is not GateKind.LIMIT or decision.verdict is not Verdict.CONTINUE:
        return None
    reached: set[Limit] = (
        {exhausted.limit for exhausted in now.short.limits} if now.short else set()
    )
    try:
        amounts = granted(decision.result, reached)
    except InvalidBudget as exc:
        raise Tampered(f"the grant at gate {pending.gate}: {exc}") from exc
    return BudgetGranted(gate=pending.gate, by=decision.by, amounts=amounts)


def _words(now: Continuation, exhausted: ExhaustedLimit) -> str:
    return f"{_owner(now, exhausted)} reached its limit: {words_of(exhausted)}"


def _owner(now: Continuation, exhausted: ExhaustedLimit) -> str:
    return "the run" if exhausted.frame is None else now.frame(exhausted.frame).agent


def _fact(now: Continuation, exhausted: ExhaustedLimit) -> dict[str, Any]:
    return {
        "of": _owner(now, exhausted),
        "limit": name_of(exhausted.limit),
        "used": "unknown" if exhausted.used is None else to_text(exhausted.limit, exhausted.used),
        "allowed": to_text(exhausted.limit, exhausted.allowed),
    }

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
    frame = next((one.frame for one in reached if one.frame is not None), ROOT)
    why = "; ".join(_words(now, one) for one in reached)
    why = why[0].upper() + why[1:] if frame == ROOT and reached[0].frame is None else why
    args = {"limits": [_fact(now, one) for one in reached]}
    gate = open_frame_gate(now, frame, GateKind.LIMIT, why=why, args=args, at=at)
    assert isinstance(gate.event, GateOpened)
    exceeded = tuple(
        BudgetExceeded(
            gate=gate.event.gate,
            frame=one.frame,
            limit=one.limit,
            used=one.used,
            allowed=one.allowed,
            at=at,
        )
        for one in reached
    )
    return exceeded, gate


def read_grant(now: Continuation, pending: Pending, decision: Decision) -> BudgetGranted | None:
    """Read the grant of a decision; None if it is not about a limit or ends the run. Raises Tampered."""
    if pending.kind is not GateKind.LIMIT or decision.verdict is not Verdict.CONTINUE:
        return None
    reached: set[Limit] = {one.limit for one in now.short.limits} if now.short else set()
    try:
        amounts = granted(decision.result, reached)
    except InvalidBudget as exc:
        raise Tampered(f"the grant at gate {pending.gate}: {exc}") from exc
    return BudgetGranted(gate=pending.gate, by=decision.by, amounts=amounts)


def _words(now: Continuation, one: ExhaustedLimit) -> str:
    return f"{_owner(now, one)} reached its limit: {words_of(one)}"


def _owner(now: Continuation, one: ExhaustedLimit) -> str:
    return "the run" if one.frame is None else now.frame(one.frame).agent


def _fact(now: Continuation, one: ExhaustedLimit) -> dict[str, Any]:
    return {
        "of": _owner(now, one),
        "limit": name_of(one.limit),
        "used": "unknown" if one.used is None else to_text(one.limit, one.used),
        "allowed": to_text(one.limit, one.allowed),
    }

"""Closes a request without a decision, by expiry or cancellation. Neither is signed.

The caller has locked the run's row, so no other transaction can close the request meanwhile.
"""

from collections.abc import Mapping
from datetime import datetime

from approvals.models import Approval
from approvals.requests import expiry
from approvals.signed import audit
from runtime.control.settle import settle
from runtime.ports.access import Actor


def is_expired(approval: Approval, at: datetime) -> bool:
    """Tell whether this request is past its deadline and still stored as pending."""
    pending = approval.status == Approval.Status.PENDING
    return pending and approval.expires_at is not None and approval.expires_at <= at


def expire(approval: Approval, at: datetime) -> None:
    """Settle the gate of a request past its last deadline, as its demands say. Raises GateNotOpen."""
    decision = expiry.decision(approval)
    settle(gate=approval.gate, decision=decision)
    _close(
        approval,
        Approval.Status.EXPIRED,
        actor=None,
        at=at,
        reason=decision.reason,
        more={"verdict": decision.verdict},
    )


def cancel(approval: Approval, *, actor: Actor | None, at: datetime, reason: str) -> None:
    """Cancel a request whose gate the caller has closed."""
    _close(approval, Approval.Status.CANCELLED, actor=actor, at=at, reason=reason)


def clear_decision(approval: Approval) -> None:
    """Remove the signed statement, and the arguments of an edit, from the row. The caller saves it."""
    approval.statement = approval.signature = approval.key_id = approval.effective_at = None
    approval.channel = approval.decided_for = None
    approval.edited = approval.edited_preview = None


def _close(
    approval: Approval,
    status: Approval.Status,
    *,
    actor: Actor | None,
    at: datetime,
    reason: str,
    more: Mapping[str, str] | None = None,
) -> None:
    approval.status, approval.decided_by = status, None if actor is None else actor.person
    approval.decided_at, approval.reason = at, reason
    clear_decision(approval)
    approval.save()
    audit.append(
        run=approval.run_id,
        actor=actor,
        act=status,
        subject=f"request {approval.id}",
        detail={"digest": approval.approval_digest, "reason": reason, **(more or {})},
        at=at,
    )

"""Closes a request without a decision, by expiry or cancellation. Neither is signed.

The caller has locked the run's row, so no other transaction can close the request meanwhile.
"""

from collections.abc import Mapping
from datetime import datetime

from approvals import audit
from approvals.models import Request
from approvals.requests import expiry
from runtime.control.settle import settle
from runtime.ports.access import Actor


def is_expired(request: Request, at: datetime) -> bool:
    """Tell whether this request is past its deadline and still stored as pending."""
    pending = request.status == Request.Status.PENDING
    return pending and request.expires_at is not None and request.expires_at <= at


def expire(request: Request, at: datetime) -> None:
    """Settle the gate of a request past its last deadline, as its demands say. Raises GateNotOpen."""
    decision = expiry.decision(request)
    settle(gate=request.gate, decision=decision)
    _close(
        request,
        Request.Status.EXPIRED,
        actor=None,
        at=at,
        reason=decision.reason,
        more={"verdict": decision.verdict},
    )


def cancel(request: Request, *, actor: Actor | None, at: datetime, reason: str) -> None:
    """Cancel a request whose gate the caller has closed."""
    _close(request, Request.Status.CANCELLED, actor=actor, at=at, reason=reason)


def clear_decision(request: Request) -> None:
    """Remove the signed statement, and the arguments of an edit, from the row. The caller saves it."""
    request.statement = request.signature = request.key_id = request.effective_at = None
    request.channel = request.decided_for = None
    request.edited = request.edited_preview = None


def _close(
    request: Request,
    status: Request.Status,
    *,
    actor: Actor | None,
    at: datetime,
    reason: str,
    more: Mapping[str, str] | None = None,
) -> None:
    request.status, request.decided_by = status, None if actor is None else actor.person
    request.decided_at, request.reason = at, reason
    clear_decision(request)
    request.save()
    audit.append(
        run=request.run_id,
        actor=actor,
        act=status,
        subject=f"request {request.id}",
        detail={"digest": request.request_digest, "reason": reason, **(more or {})},
        at=at,
    )

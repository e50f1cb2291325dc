"""What ends a request without a person's decision: time and cancelling. Nobody signs for either.

The caller holds the run's row, under which nobody else can end it.
"""

from datetime import UTC, datetime

from approvals import audit
from approvals.models import Request
from runtime.control.settle import settle
from runtime.core.enums import Decision, Verdict
from runtime.ports.access import Actor


def is_expired(request: Request, at: datetime) -> bool:
    """Whether time decides this request, and nobody has written that down."""
    pending = request.status == Request.Status.PENDING
    return pending and request.expires_at is not None and request.expires_at <= at


def expire(request: Request, at: datetime) -> None:
    """Settle the gate of a request that is due. Raises GateNotOpen."""
    assert request.expires_at is not None
    due = request.expires_at.astimezone(UTC)
    reason = f"Nobody decided before {due:%Y-%m-%d %H:%M:%S} UTC."
    decision = Decision(verdict=Verdict.EXPIRE, by="", reason=reason)
    settle(gate=request.gate, decision=decision)
    _close(request, Request.Status.EXPIRED, actor=None, at=at, reason=reason)


def cancel(request: Request, *, actor: Actor | None, at: datetime, reason: str) -> None:
    """The gate needs nobody any more; whoever calls this has closed it."""
    _close(request, Request.Status.CANCELLED, actor=actor, at=at, reason=reason)


def forget_decision(request: Request) -> None:
    """What somebody signed of it does not count any more. The caller saves."""
    request.statement = request.signature = request.key_id = request.effective_at = None


def _close(
    request: Request, status: Request.Status, *, actor: Actor | None, at: datetime, reason: str
) -> None:
    request.status, request.decided_by = status, None if actor is None else actor.person
    request.decided_at, request.reason = at, reason
    forget_decision(request)
    request.save()
    audit.append(
        run=request.run_id,
        actor=actor,
        act=status,
        subject=f"request {request.id}",
        detail={"digest": request.request_digest, "reason": reason},
        at=at,
    )

"""Deciding: the one choke point for every door. Nothing else closes an approval request.

The order of refusal is part of the contract: whoever may not read a request learns nothing about
it, whoever may not decide learns nothing about races or digests. Lock order: run, gate, request,
signal, audit.
"""

import hmac
from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from approvals import audit, permissions, queries
from approvals.errors import AlreadyDecided, DigestMismatch, Invalid
from approvals.models import Request
from runtime import engine
from runtime.core.decisions import Decision, Verdict
from runtime.errors import GateNotOpen
from runtime.models import Run
from runtime.ports import Actor

MAX_REASON = 2_000

_STATUS = {Verdict.APPROVE: Request.Status.APPROVED, Verdict.DENY: Request.Status.DENIED}


def decide(
    *, request: UUID, verdict: object, digest: object, reason: object, actor: Actor
) -> queries.Approval:
    """Approve or deny for good. The values come just as they came through the door.

    Raises, in this order: NotFound; Forbidden (`scope`, `requester`, `not_eligible`);
    AlreadyDecided with the winner; DigestMismatch; Invalid naming `digest`, `verdict` or
    `reason`. Nothing is written when it raises.
    """
    run = queries.readable(request, permissions.standing_of(actor)).run_id
    with transaction.atomic():
        Run.objects.select_for_update(no_key=True).only("id").get(pk=run)
        standing = permissions.standing_of(actor)  # again, now that nothing of the run can move
        row = queries.readable(request, standing)
        _check_right(row, standing)
        _check_still_open(row)
        _check_digest(row, digest)
        decision = _decision(verdict, reason, digest, by=actor.person)
        _settle(row, decision)
        at = timezone.now()
        _close(row, decision, at)
        audit.append(
            run=row.run_id,
            actor=actor,
            act=row.status,
            subject=f"request {row.id}",
            detail={"digest": row.request_digest, "reason": decision.reason},
            at=at,
        )
    return queries.plain(row, standing)


def _check_right(row: Request, standing: permissions.Standing | None) -> None:
    refusal = permissions.refusal(standing, requester=row.requester, risk=row.risk)
    if refusal is not None:
        raise refusal


def _check_still_open(row: Request) -> None:
    if row.status != Request.Status.PENDING:
        raise AlreadyDecided(row.decided_by)


def _check_digest(row: Request, digest: object) -> None:
    if isinstance(digest, str) and not _same(digest, row.request_digest):
        raise DigestMismatch


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(
        one.encode("utf-8", "surrogatepass"), other.encode("utf-8", "surrogatepass")
    )


def _decision(verdict: object, reason: object, digest: object, *, by: str) -> Decision:
    if not isinstance(digest, str):
        raise Invalid("digest", "must be the digest of the request you saw")
    if verdict not in list(Verdict):
        raise Invalid("verdict", f"must be one of {', '.join(Verdict)}")
    chosen = Verdict(str(verdict))
    return Decision(verdict=chosen, by=by, reason=_checked_reason(reason, chosen))


def _checked_reason(reason: object, verdict: Verdict) -> str:
    """The reason verbatim: what the model hears and the audit keeps is what was written."""
    if reason is None:
        reason = ""
    if not isinstance(reason, str):
        raise Invalid("reason", "must be text")
    if len(reason) > MAX_REASON:
        raise Invalid("reason", f"must have at most {MAX_REASON} characters")
    if "\x00" in reason or any("\ud800" <= char <= "\udfff" for char in reason):
        raise Invalid("reason", "contains a character that is not text")
    if verdict is Verdict.DENY and not reason.strip():
        raise Invalid("reason", "is required to deny")
    return reason


def _settle(row: Request, decision: Decision) -> None:
    try:
        engine.settle(gate=row.gate, decision=decision)
    except GateNotOpen as exc:
        raise AlreadyDecided(None) from exc


def _close(row: Request, decision: Decision, at: datetime) -> None:
    """The compare-and-set that makes one winner even if a door forgot the lock."""
    row.status = _STATUS[decision.verdict]
    row.decided_by, row.decided_at, row.reason = decision.by, at, decision.reason
    changed = Request.objects.filter(
        pk=row.pk, status=Request.Status.PENDING, request_digest=row.request_digest
    ).update(status=row.status, decided_by=row.decided_by, decided_at=at, reason=decision.reason)
    if changed != 1:
        winner = Request.objects.values_list("decided_by", flat=True).get(pk=row.pk)
        raise AlreadyDecided(winner)

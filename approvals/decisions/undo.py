"""Undoes a decision before it takes effect. The request is open again."""

from uuid import UUID

from django.db import transaction

from approvals import audit, clock, readings
from approvals.decisions import checks, closing, refusals, votes
from approvals.errors import AlreadyDecided, NotDecided, TooLate
from approvals.models import Claim, Request
from approvals.permissions import principals
from approvals.queries import requests
from runtime.control.settle import undo as undo_decision
from runtime.errors import GateNotOpen, RunEnded
from runtime.ports.access import Actor
from runtime.store.tables import ledger


def undo(*, request: UUID, actor: Actor) -> requests.Approval:
    """Undo the actor's own decision within the undo window, or withdraw their vote while others must still vote.

    Raises, in this order: NotFound; Forbidden; Cancelled or Expired; NotDecided; AlreadyDecided with the name of the
    decider; TooLate. Nothing is written when it raises, except that refusals are recorded.
    """
    with refusals.recorded(actor, pk=request), transaction.atomic():
        audit.lock_run_of(request)
        principal = principals.principal_of(actor)
        row = requests.readable(request, principal)
        if not votes.is_for_absent(row, principal):
            checks.check_right(row, principal)
        if votes.withdraw(row, actor):
            readings.undone(row.id, actor)
            return requests.to_view(row, principal)
        _check_undoable(row, actor)
        try:
            undo_decision(gate=row.gate)
        except (GateNotOpen, RunEnded) as exc:
            raise TooLate from exc
        _reopen(row, actor)
        undone = ledger.undone(row.id, audit.undone(row))
    ledger.record(undone)  # after the commit, and before the caller answers
    return requests.to_view(row, principal)


def take_back(*, request: UUID, by: str, actor: Actor) -> bool:
    """Undo an approval by `by` that the actor withdraws with others. Return False if it is final or no longer theirs.

    The caller has checked that the actor may withdraw it.
    """
    with transaction.atomic():
        audit.lock_run_of(request)
        row = Request.objects.get(pk=request)
        if row.status != Request.Status.APPROVED or row.decided_by != by:
            return False
        if row.effective_at is None or row.effective_at <= clock.now():
            return False
        try:
            undo_decision(gate=row.gate)
        except (GateNotOpen, RunEnded):
            return False
        _reopen(row, actor)
        undone = ledger.undone(row.id, audit.undone(row))
    ledger.record(undone)
    return True


def _check_undoable(row: Request, actor: Actor) -> None:
    if row.status == Request.Status.PENDING:
        raise NotDecided
    if row.status in (Request.Status.CANCELLED, Request.Status.EXPIRED):
        checks.check_open(row)
    if row.decided_by != actor.person:
        raise AlreadyDecided(row.decided_by)
    if row.effective_at is None or row.effective_at <= clock.now():
        raise TooLate


def _reopen(row: Request, actor: Actor) -> None:
    verdict = row.status
    row.status = Request.Status.PENDING
    row.decided_by = row.decided_at = row.reason = None
    closing.clear_decision(row)
    votes.take_back(row, actor)
    readings.undone(row.id, actor)
    Claim.objects.filter(request=row).delete()  # it ended with the decision
    row.save()
    audit.append(
        run=row.run_id,
        actor=actor,
        act=audit.UNDONE,
        subject=f"request {row.id}",
        detail={"digest": row.request_digest, "was": verdict},
    )

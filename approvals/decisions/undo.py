"""Undoes a decision before it takes effect. The request is open again."""

from uuid import UUID

from django.db import transaction

from approvals import clock
from approvals.decisions import checks, commit, votes
from approvals.errors import AlreadyDecided, NotDecided, TooLate
from approvals.models import Approval, ApprovalClaim
from approvals.reads import approval_views, review_times
from approvals.rights import principals
from approvals.signed import audit
from runtime.control.settle import undo as undo_decision
from runtime.errors import GateNotOpen, RunEnded
from runtime.ports.access import Actor
from runtime.store.tables import used_approvals


def undo(*, approval_id: UUID, actor: Actor) -> approval_views.ApprovalView:
    """Undo the actor's own decision within the undo window, or withdraw their vote while others must still vote.

    Raises, in this order: NotFound; Forbidden; Cancelled or Expired; NotDecided; AlreadyDecided with the name of the
    decider; TooLate. Nothing is written when it raises, except that refusals are recorded.
    """
    with checks.recording_refusals(actor, pk=approval_id), transaction.atomic():
        audit.lock_run_of(approval_id)
        principal = principals.principal_of(actor)
        approval = approval_views.readable(approval_id, principal)
        if not votes.is_for_absent(approval, principal):
            checks.check_right(approval, principal)
        if votes.withdraw(approval, actor):
            review_times.undone(approval.id, actor)
            return approval_views.to_view(approval, principal)
        if approval.status == Approval.Status.PENDING:
            raise NotDecided
        if approval.status in (Approval.Status.CANCELLED, Approval.Status.EXPIRED):
            checks.check_open(approval)
        if approval.decided_by != actor.person:
            raise AlreadyDecided(approval.decided_by)
        if approval.effective_at is None or approval.effective_at <= clock.now():
            raise TooLate
        try:
            undo_decision(gate=approval.gate)
        except (GateNotOpen, RunEnded) as exc:
            raise TooLate from exc
        _reopen(approval, actor)
        undone = used_approvals.undone_line(approval.id, audit.undone(approval))
    used_approvals.record(undone)  # after the commit, and before the caller answers
    return approval_views.to_view(approval, principal)


def take_back(*, approval_id: UUID, by: str, actor: Actor) -> bool:
    """Undo an approval by `by` that the actor withdraws with others. Return False if it is final or no longer theirs.

    The caller has checked that the actor may withdraw it.
    """
    with transaction.atomic():
        audit.lock_run_of(approval_id)
        approval = Approval.objects.get(pk=approval_id)
        if approval.status != Approval.Status.APPROVED or approval.decided_by != by:
            return False
        if approval.effective_at is None or approval.effective_at <= clock.now():
            return False
        try:
            undo_decision(gate=approval.gate)
        except (GateNotOpen, RunEnded):
            return False
        _reopen(approval, actor)
        undone = used_approvals.undone_line(approval.id, audit.undone(approval))
    used_approvals.record(undone)
    return True


def _reopen(approval: Approval, actor: Actor) -> None:
    verdict = approval.status
    approval.status = Approval.Status.PENDING
    approval.decided_by = approval.decided_at = approval.reason = None
    commit.clear_decision(approval)
    votes.take_back(approval, actor)
    review_times.undone(approval.id, actor)
    ApprovalClaim.objects.filter(approval=approval).delete()  # it ended with the decision
    approval.save()
    audit.append(
        run=approval.run_id,
        actor=actor,
        act=audit.UNDONE,
        subject=f"request {approval.id}",
        detail={"digest": approval.approval_digest, "was": verdict},
    )

"""Records the steps of escalation that have begun, for lists and the audit.

People of a step may decide from its time on, whether it was recorded or not (`policies.escalation`). The caller is the
sweeper, of which several may run: a step is recorded under the lock of its run, so once.
"""

import logging
from threading import Event
from uuid import UUID

from django.db import InterfaceError, OperationalError, transaction
from django.db.models import Q

from approvals import clock
from approvals.decisions import votes
from approvals.models import Approval
from approvals.requests import verification
from approvals.rules import policy
from approvals.rules.policy import ESCALATE, demands_of
from approvals.signed import audit
from runtime.control.transaction import notify

log = logging.getLogger(__name__)

BATCH = 200
ESCALATED = "escalated"  # an audited act


def record_begun(stop: Event) -> int:
    """Record every step that has begun, and return the number of requests that escalated."""
    number, after = 0, Q()
    while not stop.is_set():
        rows = Approval.objects.filter(
            after, status=Approval.Status.PENDING, next_step=ESCALATE, next_at__lte=clock.now()
        )
        due = list(rows.order_by("next_at", "id").values_list("id", "run_id", "next_at")[:BATCH])
        number += sum(_recorded(approval_id, run) for approval_id, run, _ in due)
        if len(due) < BATCH:
            break
        last, _, at = due[-1]
        after = Q(next_at__gt=at) | Q(next_at=at, id__gt=last)
    return number


def _recorded(approval_id: UUID, run: UUID) -> bool:
    """Record the steps of one request. An error at one request is logged, so that it stops no other."""
    try:
        return _record(approval_id, run)
    except (OperationalError, InterfaceError):
        raise
    except Exception:  # of any kind: of this request alone
        log.exception("Request %s does not escalate", approval_id)
        return False


def _record(approval_id: UUID, run: UUID) -> bool:
    """Record the steps of one request that have begun. Return False if another sweeper did, or it is closed."""
    with transaction.atomic():
        audit.lock_runs(run)
        approval, at = Approval.objects.get(pk=approval_id), clock.now()
        if approval.status != Approval.Status.PENDING:
            return False
        why = verification.fault(approval)
        if why is not None:
            log.error(
                "Request %s does not escalate, because it was tampered with: %s", approval.id, why
            )
            return False
        demands = demands_of(approval.rule)
        if demands is None:
            log.error("Request %s does not escalate: the default policy has no steps", approval.id)
            return False
        begun = policy.begun(demands, approval.expires_at, at)
        if begun <= approval.escalated:
            return False
        for number, step in enumerate(
            demands.escalate[approval.escalated : begun], approval.escalated + 1
        ):
            audit.append(
                run=run,
                actor=None,
                act=ESCALATED,
                subject=f"request {approval.id}",
                detail={
                    "digest": approval.approval_digest,
                    "step": str(number),
                    "to": ", ".join((*step.people, *step.groups)),
                },
                at=at,
            )
        follows = policy.next_step(demands, approval.expires_at, at)
        assert follows is not None  # it has a deadline
        Approval.objects.filter(pk=approval.pk).update(
            escalated=begun, next_step=follows.step, next_at=follows.at
        )
        votes.note_open(approval, at)
        notify(run, inbox=True, hint=False)
    return True

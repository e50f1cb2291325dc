"""Two jobs of the sweeper: it records escalations that have begun, and marks requests that too few people can decide.

Several sweepers may run: each change is made under the lock of the run, so once.
"""

import logging
from collections import defaultdict
from datetime import datetime
from threading import Event
from uuid import UUID

from django.db import InterfaceError, OperationalError, transaction
from django.db.models import Q

from approvals import clock
from approvals.decisions import votes
from approvals.models import Approval, AuditEntry, Vote
from approvals.outbox import messages
from approvals.reads import deciders
from approvals.requests import verification
from approvals.rights.principals import Principal
from approvals.rules import policy
from approvals.rules.policy import ESCALATE, decode_demands
from approvals.signed import audit
from runtime.control.user_actions import notify

log = logging.getLogger(__name__)

BATCH = 200  # escalations of one query
ROWS = 500  # requests of one query for their outlook
FEW = 50  # people who are looked at first, which mostly suffice
MOST = 10_000  # requests of one pass; the next pass continues after them
ESCALATED, UNDECIDABLE = "escalated", "undecidable"  # audited acts
_COLUMNS = (
    "run_id",
    "kind",
    "risk",
    "requester",
    "origin",
    "excluded",
    "rule",
    "voted_for",
    "created_at",
    "expires_at",
    "first_expires_at",
    "undecidable_at",
    "approval_digest",
)


def record_escalations(stop: Event) -> int:
    """Record every step of escalation that has begun, and return the number of requests that escalated.

    People of a step may decide from its time on, whether it was recorded or not (`policy.compute_stages`).
    """
    number, after = 0, Q()
    while not stop.is_set():
        rows = Approval.objects.filter(
            after,
            status=Approval.Status.PENDING,
            next_step=ESCALATE,
            next_at__lte=clock.read_time(),
        )
        due = list(rows.order_by("next_at", "id").values_list("id", "run_id", "next_at")[:BATCH])
        for approval_id, run, _ in due:
            try:
                number += _record_steps(approval_id, run)
            except (OperationalError, InterfaceError):
                raise
            except Exception:  # of any kind: an error at one request stops no other
                log.exception("Request %s does not escalate", approval_id)
        if len(due) < BATCH:
            break
        last, _, at = due[-1]
        after = Q(next_at__gt=at) | Q(next_at=at, id__gt=last)
    return number


def _record_steps(approval_id: UUID, run: UUID) -> bool:
    """Record the steps of one request. Return False if another sweeper did, or the request is closed."""
    with transaction.atomic():
        audit.lock_runs(run)
        approval, at = Approval.objects.get(pk=approval_id), clock.read_time()
        if approval.status != Approval.Status.PENDING:
            return False
        fault = verification.find_fault(approval)
        if fault is not None:
            log.error("Request %s does not escalate: it was tampered with: %s", approval.id, fault)
            return False
        demands = decode_demands(approval.rule)
        if demands is None:
            log.error("Request %s does not escalate: the default policy has no steps", approval.id)
            return False
        begun = policy.count_begun_steps(demands, approval.opened_until, at)
        if begun <= approval.escalated:
            return False
        for number, step in enumerate(
            demands.escalate[approval.escalated : begun], approval.escalated + 1
        ):
            to = ", ".join((*step.people, *step.groups))
            audit.append_about(approval, actor=None, act=ESCALATED, at=at, step=str(number), to=to)
        follows = policy.find_next_step(demands, approval.opened_until, at, approval.expires_at)
        assert follows is not None  # it has a deadline
        Approval.objects.filter(pk=approval.pk).update(
            escalated=begun, next_step=follows.step, next_at=follows.at
        )
        votes.note_open(approval, at)
        messages.wake(kind=messages.CHANNEL)
        notify(run, inbox=True, hint=False)
    return True


class Outlooks:
    """Marks pending requests in their order. A pass that is cut short leaves in `_after` where the next one begins."""

    def __init__(self) -> None:
        self._after = Q()

    def mark(self, stop: Event) -> int:
        """Mark requests that too few people can decide in time, and clear marks. Return how many changed.

        The people are read once for all requests, and requests with the same rule, origin and votes are looked at once.
        """
        everyone, changed = _Everyone(deciders.list_deciders()), 0
        for _ in range(0, MOST, ROWS):
            pending = Approval.objects.filter(self._after, status=Approval.Status.PENDING)
            rows = list(pending.order_by("created_at", "id").only(*_COLUMNS)[:ROWS])
            changed += _mark_changed(rows, everyone)
            if len(rows) < ROWS or stop.is_set():
                self._after = Q()
                break
            last = rows[-1]
            at = Q(created_at__gte=last.created_at)
            self._after = at & (Q(created_at__gt=last.created_at) | Q(id__gt=last.id))
        return changed


class _Everyone:
    """All people with a right to decide, and the outlooks of this pass."""

    def __init__(self, people: tuple[Principal, ...]) -> None:
        self._people = people
        self._deputies = tuple(person for person in people if person.stand_ins)
        self._cooling = tuple(person for person in people if person.cooling_until)
        self._relevant: dict[tuple[str | None, str], tuple[Principal, ...]] = {}
        self._outlooks: dict[tuple[object, ...], deciders.Outlook] = {}

    def foresee_outlook(
        self, approval: Approval, votes: dict[str, int], at: datetime
    ) -> deciders.Outlook:
        """Return the outlook of a request. If the people suffice, it may lack some of them."""
        end = deciders.find_deadline(approval)
        away = [
            (deputy.person, absent.person)
            for deputy in self._deputies
            for absent in deputy.list_absent(end)
        ]
        deadline = approval.expires_at
        soon = [
            person.person
            for person in self._cooling
            if (until := person.cooling_until) and (deadline is None or until < deadline)
        ]
        key = (
            approval.rule,
            approval.kind,
            approval.risk,
            approval.requester,
            tuple(approval.origin),
            tuple(approval.excluded),
            frozenset(votes.items()),
            tuple(approval.voted_for),
            tuple(soon),
            tuple(away),
        )
        if key not in self._outlooks:
            rule = (approval.rule, approval.kind)
            if rule not in self._relevant:
                self._relevant[rule] = deciders.select_relevant(approval, self._people)
            people = self._relevant[rule]
            outlook = deciders.compute_outlook(approval, people[:FEW], at, votes, self._deputies)
            if not outlook.suffice and len(people) > FEW:
                outlook = deciders.compute_outlook(approval, people, at, votes, self._deputies)
            self._outlooks[key] = outlook
        return self._outlooks[key]


def _mark_changed(rows: list[Approval], everyone: _Everyone) -> int:
    cast: dict[UUID, dict[str, int]] = defaultdict(dict)
    ruled = [approval.pk for approval in rows if approval.rule is not None]
    for approval_id, person, stage in Vote.objects.filter(approval__in=ruled).values_list(
        "approval_id", "person", "stage"
    ):
        cast[approval_id][person] = stage
    at, changed = clock.read_time(), 0
    for approval in rows:
        try:
            outlook = everyone.foresee_outlook(approval, cast[approval.pk], at)
        except (ValueError, KeyError, TypeError):
            continue  # it was tampered with: its page says so
        if outlook.suffice is (approval.undecidable_at is not None):
            changed += _mark(approval, outlook, at)
    return changed


def _mark(approval: Approval, outlook: deciders.Outlook, at: datetime) -> bool:
    """Mark the request or clear its mark. Return False if another sweeper did. Only the first mark is audited."""
    with transaction.atomic():
        audit.lock_runs(approval.run_id)
        changed = Approval.objects.filter(
            pk=approval.pk,
            status=Approval.Status.PENDING,
            undecidable_at__isnull=not outlook.suffice,
        ).update(undecidable_at=None if outlook.suffice else at)
        if not changed:
            return False
        subject = audit.name_subject(approval.id)
        acts = AuditEntry.objects.filter(run=approval.run_id, act=UNDECIDABLE, subject=subject)
        if not outlook.suffice and not acts.exists():
            people = ", ".join(outlook.people)
            audit.append_about(approval, actor=None, act=UNDECIDABLE, at=at, left=people)
        notify(approval.run_id, inbox=True, hint=False)
    if not outlook.suffice:
        log.error("Request %s: too few people are left who may decide it in time", approval.pk)
    return True

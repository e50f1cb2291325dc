"""Marks pending requests that too few people are left to decide in time, for lists, pages and the log.

The caller is the sweeper, each minute. The people are read once for all requests, and requests with the same rule,
origin and votes are looked at once, with a few people first: mostly these suffice.
"""

import logging
from collections import defaultdict
from datetime import datetime
from threading import Event
from uuid import UUID

from django.db import transaction
from django.db.models import Q

from approvals import clock
from approvals.models import Approval, AuditEntry, Vote
from approvals.reads import deciders
from approvals.reads.deciders import Outlook
from approvals.rights.principals import Principal
from approvals.signed import audit
from runtime.control.transaction import notify

log = logging.getLogger(__name__)

BATCH = 500
FEW = 50  # people who are looked at first
MOST = 10_000  # requests of one pass; the next pass continues after them
UNDECIDABLE = "undecidable"  # an audited act
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
    "undecidable_at",
    "approval_digest",
)


class Outlooks:
    """Looks at the pending requests in their order. `_after` is where the last look ended, if it was cut short."""

    def __init__(self) -> None:
        self._after = Q()

    def mark(self, stop: Event) -> int:
        """Mark requests that too few people can decide in time, and clear marks. Return how many changed."""
        everyone, changed = _Everyone(deciders.deciders()), 0
        for _ in range(0, MOST, BATCH):
            pending = Approval.objects.filter(self._after, status=Approval.Status.PENDING)
            rows = list(pending.order_by("created_at", "id").only(*_COLUMNS)[:BATCH])
            changed += _mark_all(rows, everyone)
            if len(rows) < BATCH or stop.is_set():
                self._after = Q()
                break
            last = rows[-1]
            at = Q(created_at__gte=last.created_at)
            self._after = at & (Q(created_at__gt=last.created_at) | Q(id__gt=last.id))
        return changed


class _Everyone:
    """All people with a right to decide, and the outlooks of this look."""

    def __init__(self, people: tuple[Principal, ...]) -> None:
        self._people = people
        self._deputies = tuple(one for one in people if one.stand_ins)
        self._cooling = tuple(one for one in people if one.cooling_until)
        self._relevant: dict[tuple[str | None, str], tuple[Principal, ...]] = {}
        self._known: dict[tuple[object, ...], Outlook] = {}

    def outlook(self, approval: Approval, votes: dict[str, int], at: datetime) -> Outlook:
        """Return the outlook of a request. If the people suffice, it may lack some of them."""
        end = deciders.end_of(approval)
        away = [
            (one.person, absent.person) for one in self._deputies for absent in one.absent_at(end)
        ]
        soon = [one.person for one in self._cooling if _ends_in_time(one, approval)]
        same = (
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
        if same not in self._known:
            self._known[same] = self._look(approval, votes, at)
        return self._known[same]

    def _look(self, approval: Approval, votes: dict[str, int], at: datetime) -> Outlook:
        rule = (approval.rule, approval.kind)
        if rule not in self._relevant:
            self._relevant[rule] = deciders.relevant(approval, self._people)
        people = self._relevant[rule]
        found = deciders.outlook(approval, people[:FEW], at, votes, self._deputies)
        if found.suffice or len(people) <= FEW:
            return found
        return deciders.outlook(approval, people, at, votes, self._deputies)


def _mark_all(rows: list[Approval], everyone: _Everyone) -> int:
    cast: dict[UUID, dict[str, int]] = defaultdict(dict)
    ruled = [approval.pk for approval in rows if approval.rule is not None]
    for approval_id, person, stage in Vote.objects.filter(approval__in=ruled).values_list(
        "approval_id", "person", "stage"
    ):
        cast[approval_id][person] = stage
    at, changed = clock.now(), 0
    for approval in rows:
        try:
            found = everyone.outlook(approval, cast[approval.pk], at)
        except (ValueError, KeyError, TypeError):
            continue  # it was tampered with: its page says so
        if found.suffice is (approval.undecidable_at is not None):
            changed += _mark(approval, found, at)
    return changed


def _ends_in_time(person: Principal, approval: Approval) -> bool:
    until = person.cooling_until
    return until is not None and (approval.expires_at is None or until < approval.expires_at)


def _mark(approval: Approval, found: Outlook, at: datetime) -> bool:
    """Mark the request or clear its mark, with one audited act in its life. Return False if another sweeper did."""
    with transaction.atomic():
        audit.lock_runs(approval.run_id)
        changed = Approval.objects.filter(
            pk=approval.pk, status=Approval.Status.PENDING, undecidable_at__isnull=not found.suffice
        ).update(undecidable_at=None if found.suffice else at)
        if not changed:
            return False
        subject = f"request {approval.pk}"
        acts = AuditEntry.objects.filter(run=approval.run_id, act=UNDECIDABLE, subject=subject)
        if not found.suffice and not acts.exists():
            audit.append(
                run=approval.run_id,
                actor=None,
                act=UNDECIDABLE,
                subject=subject,
                detail={"digest": approval.approval_digest, "left": ", ".join(found.people)},
                at=at,
            )
        notify(approval.run_id, inbox=True, hint=False)
    if not found.suffice:
        log.error("Request %s: too few people are left who may decide it in time", approval.pk)
    return True

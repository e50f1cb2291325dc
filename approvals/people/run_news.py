"""Finds what a requester is mailed about: their runs that ended, and messages of agents that reviewers released.

Of a run that ended, the end alone is the news: the release of its answer ends it.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar
from uuid import UUID

from django.db.models import Exists, OuterRef, Q, QuerySet

from approvals.models import Approval, SentMail
from approvals.requests import verification
from runtime.keyring import sealing
from runtime.models import Run
from runtime.ports import wiring
from runtime.ports.access import Actor

MAX_NEWS = 200  # in one mail; the rest follows in the next one
Row = TypeVar("Row", Run, Approval)
OLDEST = timedelta(days=1)  # later the person has been on the pages


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """A run that ended, or a text that was released. `about` is the id of the run, or of the request with the text."""

    about: UUID
    run: UUID
    agent: str
    business_key: str
    what: str


def news(person: str, since: datetime, at: datetime) -> list[News]:
    """Return what this person was not mailed about, without runs that they may not read any more."""
    since = max(since, at - OLDEST)
    readable = Run.objects.filter(
        wiring.access().readable_runs(Actor(person=person)), requester=person
    )
    ended = readable.filter(ended_at__gte=since, removed_at=None)
    found = [
        _of(run, run.id, str(run.status))
        for run in _unnoticed(ended, person).order_by("ended_at", "id")[:MAX_NEWS]
    ]
    messages = list(_messages(person, since, at))
    runs = readable.in_bulk([approval.run_id for approval in messages])
    found += [
        _of(runs[approval.run_id], approval.id, "a text for you was released")
        for approval in messages
        if approval.run_id in runs
    ]
    return found[:MAX_NEWS]


def _messages(person: str, since: datetime, at: datetime) -> Iterator[Approval]:
    """Yield the released messages of a run that has not ended: requests whose call has a text for its requester."""
    rows = Approval.objects.filter(
        Q(effective_at=None) | Q(effective_at__lte=at),
        requester=person,
        status=Approval.Status.APPROVED,
        decided_at__gte=since,
        args__contains=sealing.MARK,
        run__ended_at=None,
    )
    for approval in _unnoticed(rows, person).order_by("decided_at", "id")[:MAX_NEWS]:
        if verification.fault(approval) is None and sealing.held_args(
            approval.tool, json.loads(approval.args)
        ):
            yield approval


def _unnoticed(rows: QuerySet[Row], person: str) -> QuerySet[Row]:
    return rows.exclude(Exists(SentMail.objects.filter(person=person, about=OuterRef("pk"))))


def _of(run: Run, about: UUID, what: str) -> News:
    return News(
        about=about, run=run.id, agent=run.agent, business_key=run.business_key or "", what=what
    )

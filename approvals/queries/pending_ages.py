"""Counts pending requests by age, for the overview."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Count, Min, Q
from django.utils import timezone

from approvals.models import Request
from runtime.core.enums import GateKind

_BOUNDS = (
    ("less than an hour", timedelta(hours=1)),
    ("1 to 24 hours", timedelta(days=1)),
    ("1 to 7 days", timedelta(days=7)),
    ("more than 7 days", timedelta.max),
)
EXPIRES_SOON = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Age:
    """The number of pending requests of an age; `share` is that of all of them, in percent."""

    label: str
    number: int
    share: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """All pending requests: by age, the oldest, those in doubt, those that expire within EXPIRES_SOON, and those stuck.

    An overdue request is past its deadline, and no worker has closed it yet. A stuck request is one that too few
    people are left to decide.
    """

    total: int
    ages: tuple[Age, ...]
    oldest: datetime | None
    in_doubt: int
    expiring: int
    overdue: int
    stuck: int


def pending() -> Pending:
    """Count all pending requests. The caller has checked that the actor may read every request."""
    now = timezone.now()
    numbers, older = {}, Q()
    for place, (_, bound) in enumerate(_BOUNDS):
        younger = Q() if bound == timedelta.max else Q(created_at__gt=now - bound)
        numbers[f"age{place}"] = Count("id", filter=older & younger)
        older = ~younger
    found = Request.objects.filter(status=Request.Status.PENDING).aggregate(
        total=Count("id"),
        oldest=Min("created_at"),
        in_doubt=Count("id", filter=Q(kind=GateKind.IN_DOUBT)),
        stuck=Count("id", filter=Q(undecidable_at__isnull=False)),
        overdue=Count("id", filter=Q(expires_at__lt=now)),
        expiring=Count("id", filter=Q(expires_at__lt=now + EXPIRES_SOON)),
        **numbers,
    )
    counts = [found.pop(name) for name in numbers]
    ages = (
        Age(label=label, number=number, share=100 * number // (found["total"] or 1))
        for (label, _), number in zip(_BOUNDS, counts, strict=True)
    )
    return Pending(**found, ages=tuple(ages))

"""Counts pending requests by age, for the overview and `/metrics`, at a cost that does not grow with their number."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection
from django.utils import timezone

from approvals.models import IN_DOUBT, Approval
from approvals.queries import windows

_AGES = (  # from, and up to
    ("less than an hour", None, timedelta(hours=1)),
    ("1 to 24 hours", timedelta(hours=1), timedelta(days=1)),
    ("1 to 7 days", timedelta(days=1), timedelta(days=7)),
    ("more than 7 days", timedelta(days=7), None),
)
EXPIRES_SOON = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Age:
    """The number of pending requests of an age; `share` is that of all that were counted, in percent."""

    label: str
    number: int
    share: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingAges:
    """All pending requests: by age, the oldest, those in doubt, those that expire within EXPIRES_SOON, and those stuck.

    An overdue request is past its deadline, and no worker has closed it yet. A stuck request is one that too few
    people are left to decide. A number that is `most` means that many or more.
    """

    ages: tuple[Age, ...]
    oldest: datetime | None
    in_doubt: int
    expiring: int
    overdue: int
    stuck: int
    most: int


def pending() -> PendingAges:
    """Count the pending requests, each number up to the WINDOW. The caller may read every request.

    Each list is in the order of an index, so that Postgres reads no other rows.
    """
    now, rows = timezone.now(), Approval.objects.filter(status=Approval.Status.PENDING)
    oldest_first = rows.order_by("created_at", "id")
    by_deadline = rows.order_by("expires_at", "created_at", "id")
    ages = [
        oldest_first.filter(
            **({"created_at__lte": now - younger} if younger else {}),
            **({"created_at__gt": now - older} if older else {}),
        )
        for _, younger, older in _AGES
    ]
    lists = (
        *ages,
        oldest_first.filter(IN_DOUBT),
        by_deadline.filter(expires_at__lt=now + EXPIRES_SOON),
        by_deadline.filter(expires_at__lt=now),
        rows.filter(undecidable_at__isnull=False).order_by("undecidable_at"),
    )
    most = windows.WINDOW
    counted, given = windows.values("count(*)", *(one.values("pk")[:most] for one in lists))
    first, more = windows.values("min(created_at)", oldest_first.values("created_at")[:1])
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {counted}, {first}", [*given, *more])
        *numbers, oldest = cursor.fetchone()
    *by_age, in_doubt, expiring, overdue, stuck = numbers
    return PendingAges(
        ages=_shares(by_age),
        oldest=oldest,
        in_doubt=in_doubt,
        expiring=expiring,
        overdue=overdue,
        stuck=stuck,
        most=most,
    )


def _shares(numbers: list[int]) -> tuple[Age, ...]:
    whole = sum(numbers) or 1
    return tuple(
        Age(label=label, number=number, share=100 * number // whole)
        for (label, *_), number in zip(_AGES, numbers, strict=True)
    )

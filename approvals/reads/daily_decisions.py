"""Counts closed requests by day and verdict, and how long people took, for the overview. A day is one in UTC."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from django.db.models import Aggregate, Count, ExpressionWrapper, F, FloatField, Q
from django.db.models.functions import Extract, TruncDate

from approvals import clock
from approvals.models import Approval, DailyDecisions
from approvals.reads.filters import VERDICTS
from approvals.reads.history import PEOPLES, is_verdict
from runtime.reads import usage


class Percentile(Aggregate):
    """The value that this share of the values do not exceed, as Postgres interpolates it."""

    function = "percentile_cont"
    template = "%(function)s(%(share)s) WITHIN GROUP (ORDER BY %(expressions)s)"
    output_field = FloatField()


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionDay:
    """The number of closed requests of a day by verdict; `median` and `p90` are the times that people took."""

    day: date
    verdicts: Mapping[str, int]
    median: timedelta | None
    p90: timedelta | None


def count() -> None:
    """Count the newest days again. Several processes may at once."""
    past = DailyDecisions.objects.filter(day__lte=clock.now().date())
    newest = past.order_by("-day").values_list("day", flat=True).first()
    since = usage.recount_from(newest)
    days = [_read_day(row) for row in _counted(since)]
    undone = DailyDecisions.objects.filter(day__gte=since.date())
    undone.exclude(day__in=[row.day for row in days]).update(verdicts={}, median=None, p90=None)
    DailyDecisions.objects.bulk_create(
        days,
        update_conflicts=True,
        unique_fields=["day"],
        update_fields=["verdicts", "median", "p90"],
    )


def read_days(since: date, until: date) -> tuple[DecisionDay, ...]:
    """Return the counted days from `since` to before `until` that have any, in order."""
    rows = DailyDecisions.objects.filter(day__gte=since, day__lt=until).order_by("day")
    return tuple(
        DecisionDay(
            day=row.day,
            verdicts=row.verdicts,
            median=_seconds(row.median),
            p90=_seconds(row.p90),
        )
        for row in rows
    )


def _counted(since: datetime) -> Any:
    by_person = Q(status__in=PEOPLES, allowance__isnull=True)
    took: Any = ExpressionWrapper(
        Extract(F("decided_at") - F("created_at"), "epoch"), output_field=FloatField()
    )
    return (
        Approval.objects.filter(decided_at__gte=since)
        .order_by()
        .values(day=TruncDate("decided_at", tzinfo=UTC))
        .annotate(
            median=Percentile(took, share="0.5", filter=by_person),
            p90=Percentile(took, share="0.9", filter=by_person),
            **{f"is_{verdict}": Count("pk", filter=is_verdict(verdict)) for verdict in VERDICTS},
        )
    )


def _read_day(row: Mapping[str, Any]) -> DailyDecisions:
    verdicts = {verdict: row[f"is_{verdict}"] for verdict in VERDICTS}
    return DailyDecisions(
        day=row["day"],
        verdicts={verdict: number for verdict, number in verdicts.items() if number},
        median=row["median"],
        p90=row["p90"],
    )


def _seconds(number: float | None) -> timedelta | None:
    return None if number is None else timedelta(seconds=number)

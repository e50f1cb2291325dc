"""Counts pending requests by age, for the overview and `/metrics`, at a cost that does not grow with their number.

Counts closed requests by day and verdict, and how long people took, for the overview. A day is one in UTC.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from django.core.exceptions import EmptyResultSet
from django.db import connection
from django.db.models import Aggregate, Count, ExpressionWrapper, F, FloatField, Q, QuerySet
from django.db.models.functions import Extract, TruncDate
from django.utils import timezone

from approvals import clock
from approvals.models import IN_DOUBT, Approval, DailyDecisions
from approvals.reads.filters import VERDICTS
from approvals.reads.history import PEOPLES, is_verdict
from runtime.reads import run_figures

_AGES = (  # from, up to, and the search of the inbox for them
    ("less than an hour", None, timedelta(hours=1), "newer:1h"),
    ("1 to 24 hours", timedelta(hours=1), timedelta(days=1), "older:1h newer:24h"),
    ("1 to 7 days", timedelta(days=1), timedelta(days=7), "older:24h newer:7d"),
    ("more than 7 days", timedelta(days=7), None, "older:7d"),
)
EXPIRES_SOON = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Age:
    """The number of pending requests of an age; `share` is that of all that were counted, in percent.

    `search` finds them in the inbox.
    """

    label: str
    search: str
    number: int
    share: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingAges:
    """All pending requests: by age, the oldest, those in doubt, those that expire within EXPIRES_SOON, and those stuck.

    An overdue request is past its deadline, and no worker has closed it yet. A stuck request is one that too few
    people are left to decide. A number that is `limit` means that many or more.
    """

    ages: tuple[Age, ...]
    oldest: datetime | None
    in_doubt: int
    expiring: int
    overdue: int
    stuck: int
    limit: int


def count_pending() -> PendingAges:
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
        for _, younger, older, _ in _AGES
    ]
    lists = (
        *ages,
        oldest_first.filter(IN_DOUBT),
        by_deadline.filter(expires_at__lt=now + EXPIRES_SOON),
        by_deadline.filter(expires_at__lt=now),
        rows.filter(undecidable_at__isnull=False).order_by("undecidable_at"),
    )
    limit = WINDOW
    counted, parameters = select_values("count(*)", *(rows.values("pk")[:limit] for rows in lists))
    first, oldest_parameters = select_values(
        "min(created_at)", oldest_first.values("created_at")[:1]
    )
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {counted}, {first}", [*parameters, *oldest_parameters])
        *numbers, oldest = cursor.fetchone()
    *by_age, in_doubt, expiring, overdue, stuck = numbers
    total = sum(by_age) or 1
    return PendingAges(
        ages=tuple(
            Age(label=label, search=search, number=number, share=100 * number // total)
            for (label, *_, search), number in zip(_AGES, by_age, strict=True)
        ),
        oldest=oldest,
        in_doubt=in_doubt,
        expiring=expiring,
        overdue=overdue,
        stuck=stuck,
        limit=limit,
    )


WINDOW = 5_000
# Columns that can be long, and that no search and no order needs.
_LONG = (
    "args",
    "schema",
    "result_schema",
    "preview",
    "statement",
    "signature",
    "reason",
    "edited",
    "rule",
)


def build_window_sql(
    rows: QuerySet[Approval], *, all_columns: bool = False
) -> tuple[str, tuple[Any, ...]]:
    """Return the WITH query for the first WINDOW of these rows, and its parameters; `all_columns` with all columns.

    Raises EmptyResultSet if no row can be among them.
    """
    by_deadline = rows.order_by(F("expires_at").asc(nulls_last=True), "created_at", "id")
    first = by_deadline if all_columns else by_deadline.defer(*_LONG)
    sql, parameters = first[:WINDOW].query.sql_with_params()
    return f"WITH approvals_approval AS ({sql})", parameters


def read_in_window(rows: QuerySet[Approval], in_order: QuerySet[Approval]) -> list[Approval]:
    """Read those requests that `in_order` selects among the first WINDOW of these rows, in its order."""
    window, window_parameters = build_window_sql(rows, all_columns=True)
    sql, parameters = in_order.query.sql_with_params()
    return list(Approval.objects.raw(f"{window} {sql}", (*window_parameters, *parameters)))


def select_values(expression: str, *queries: QuerySet[Approval, Any]) -> tuple[str, list[Any]]:
    """Write a SELECT list with one value of each query's rows, NULL for a query without rows, and its parameters."""
    selected, parameters = [], list[Any]()
    for query in queries:
        try:
            sql, own_parameters = query.query.sql_with_params()
        except EmptyResultSet:
            selected.append("NULL")
            continue
        selected.append(f"(SELECT {expression} FROM ({sql}) AS found)")
        parameters += own_parameters
    return ", ".join(selected), parameters


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
    past = DailyDecisions.objects.filter(day__lte=clock.read_time().date())
    newest = past.order_by("-day").values_list("day", flat=True).first()
    since = run_figures.compute_recount_start(newest)
    by_person = Q(status__in=PEOPLES, allowance__isnull=True)
    took: Any = ExpressionWrapper(
        Extract(F("decided_at") - F("created_at"), "epoch"), output_field=FloatField()
    )
    rows: Any = (
        Approval.objects.filter(decided_at__gte=since)
        .order_by()
        .values(day=TruncDate("decided_at", tzinfo=UTC))
        .annotate(
            median=Percentile(took, share="0.5", filter=by_person),
            p90=Percentile(took, share="0.9", filter=by_person),
            **{f"is_{verdict}": Count("pk", filter=is_verdict(verdict)) for verdict in VERDICTS},
        )
    )
    days = [
        DailyDecisions(
            day=row["day"],
            verdicts={verdict: number for verdict in VERDICTS if (number := row[f"is_{verdict}"])},
            median=row["median"],
            p90=row["p90"],
        )
        for row in rows
    ]
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
            median=_convert_seconds(row.median),
            p90=_convert_seconds(row.p90),
        )
        for row in rows
    )


def _convert_seconds(number: float | None) -> timedelta | None:
    return None if number is None else timedelta(seconds=number)

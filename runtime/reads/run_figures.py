"""Computes the figures of an agent from its last runs: how they ended, how long they took, and what people decided.

Reads what runs used and how they ended, as the sweeper counted it by day. A day is one in UTC.

The cost of a page is that of its days, agents, models and people, and not of its runs.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from math import ceil
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import F, Q, QuerySet, Sum
from pydantic import TypeAdapter, ValidationError

from runtime.core.run.continuation import RunStatus
from runtime.core.run.retries import RateLimitWait
from runtime.core.values.budgets import Limit, to_text
from runtime.models import DailyRuns, DailyUsage, Run, RunUsage
from runtime.ports import wiring
from runtime.reads.filters import TABS

LAST = 200  # runs
_GOOD, _BAD = (RunStatus.COMPLETED,), (RunStatus.FAILED, RunStatus.QUARANTINED)
RECENT = timedelta(hours=24)
MOST = 10_000  # active runs that are counted, and as many that ended

_PARTS = {
    "active": "SELECT status FROM runtime_run WHERE ended_at IS NULL",
    "ended": """SELECT status FROM runtime_run
        WHERE ended_at > now() - %(seconds)s * interval '1 second' AND removed_at IS NULL ORDER BY ended_at DESC""",
}

_COUNT = " UNION ALL ".join(
    f"SELECT '{name}', status, count(*) FROM ({sql} LIMIT %(most)s) AS {name} GROUP BY status"
    for name, sql in _PARTS.items()
)

# A paused, stopped or ended run starts no model call.
MAY_WAIT = frozenset({RunStatus.WAITING, RunStatus.SUSPENDED, RunStatus.RUNNING, RunStatus.QUEUED})
_WAITS = TypeAdapter(tuple[RateLimitWait, ...])

_BY_MODEL = """
    SELECT one->>'model', count(*), min((one->>'until')::timestamptz), min((one->>'since')::timestamptz),
        max((one->>'tries')::integer)
    FROM (SELECT status, limited FROM runtime_run WHERE ended_at IS NULL LIMIT %(most)s) AS active,
        jsonb_array_elements(limited) AS one
    WHERE status = ANY(%(statuses)s)
    GROUP BY 1 ORDER BY 2 DESC, 1
"""
COUNTS = ("replies", "unpriced", "input_tokens", "output_tokens", "micros")

RECOUNTED = timedelta(days=1)  # before the newest day: a run may end again, a decision be undone


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """The figures of the last `runs` runs, LAST at most.

    `succeeded` and `failed` count those that ended so; `median` and `p95` are of the times that the succeeded
    ones took, waiting included. `approved` and `denied` count the calls on which a person decided.
    """

    runs: int
    succeeded: int
    failed: int
    median: timedelta | None
    p95: timedelta | None
    approved: int
    denied: int

    @property
    def success(self) -> int | None:
        """The share of succeeded runs among those that succeeded or failed, in percent."""
        return _compute_percent(self.succeeded, self.succeeded + self.failed)

    @property
    def approval(self) -> int | None:
        """The share of approved calls among those that people approved or denied, in percent."""
        return _compute_percent(self.approved, self.approved + self.denied)


def read_agent_figures(readable: Q, agent: str) -> RunFigures:
    """Return the figures of the last runs of an agent that `readable` selects."""
    rows = list(
        Run.objects.filter(readable, agent=agent)
        .order_by("-id")
        .values_list("id", "status", "created_at", "ended_at")[:LAST]
    )
    statuses = Counter(status for _, status, _, _ in rows)
    times = sorted(ended - began for _, status, began, ended in rows if status in _GOOD and ended)
    verdicts: Mapping[str, int] = {}
    if rows:
        verdicts = wiring.resolve_approvals().count_verdicts([run for run, _, _, _ in rows])
    return RunFigures(
        runs=len(rows),
        succeeded=sum(statuses[status] for status in _GOOD),
        failed=sum(statuses[status] for status in _BAD),
        median=_compute_quantile(times, 0.5),
        p95=_compute_quantile(times, 0.95),
        approved=verdicts.get("approved", 0),
        denied=verdicts.get("denied", 0),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTotals:
    """The numbers of active runs, and of runs that ended within RECENT. `quarantined` are not in another number.

    With `at_least` there are more: MOST active runs and MOST of the others are counted.
    """

    people: int
    working: int
    paused: int
    quarantined: int
    failed: int
    finished: int
    cancelled: int
    at_least: bool = False


def run_totals() -> RunTotals:
    """Count all runs. The caller has checked that the actor may read every run."""
    with connection.cursor() as cursor:
        cursor.execute(_COUNT, {"seconds": RECENT.total_seconds(), "most": MOST})
        rows = cursor.fetchall()
    groups, numbers = Counter[str](), Counter[str]()
    for group, status, number in rows:
        groups[group] += number
        numbers[status] += number
    tabs = {
        name: sum(numbers[status] for status in statuses if status is not RunStatus.QUARANTINED)
        for name, statuses in TABS.items()
    }
    return RunTotals(
        quarantined=numbers[RunStatus.QUARANTINED],
        at_least=max(groups.values(), default=0) >= MOST,
        **tabs,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitedModel:
    """The `calls` of a model that wait for its provider. `next_call_at` is the time of the next of them.

    The first waits since `since`; `tries` is how often the provider has put off one of them at most.
    """

    model: str
    calls: int
    next_call_at: datetime
    since: datetime
    tries: int


def read_rate_limits(column: Any) -> tuple[RateLimitWait, ...]:
    """Return the waits in the column of a run; none if it has none, or if they cannot be read."""
    try:
        return _WAITS.validate_python(column or ())
    except ValidationError:
        return ()


def describe_rate_limits(waits: Sequence[RateLimitWait]) -> str:
    """Say which models wait, until when, and how often they were put off."""
    return "; ".join(
        f"{wait.model} waits for the rate limit of its provider until"
        f" {wait.until.isoformat(timespec='seconds')}, put off {wait.tries} times"
        for wait in waits
    )


def list_limited_models() -> tuple[LimitedModel, ...]:
    """Count the waiting calls by model. The caller has checked that the actor may read every run."""
    with connection.cursor() as cursor:
        cursor.execute(_BY_MODEL, {"most": MOST, "statuses": [str(status) for status in MAY_WAIT]})
        rows = cursor.fetchall()
    return tuple(
        LimitedModel(model=model, calls=calls, next_call_at=next_call_at, since=since, tries=tries)
        for model, calls, next_call_at, since, tries in rows
    )


def _compute_percent(share: int, total: int) -> int | None:
    return round(100 * share / total) if total else None


def _compute_quantile(times: Sequence[timedelta], share: float) -> timedelta | None:
    """Return the smallest time that at least this share of the times do not exceed."""
    return times[ceil(share * len(times)) - 1] if times else None


def compute_recount_start(newest: date | None) -> datetime:
    """Return the time from which a round counts again if `newest` is the last counted day; None for none."""
    start = newest - RECOUNTED if newest else date(2000, 1, 1)
    return datetime.combine(start, time.min, tzinfo=UTC)


class UsageKey(StrEnum):
    """What usage can be added up by."""

    AGENT = "agent"
    MODEL = "model"
    PERSON = "person"  # who requested the run
    DAY = "day"

    @property
    def column(self) -> str:
        """The column of the table."""
        return "requester" if self is UsageKey.PERSON else str(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageTotals:
    """The replies of models, their tokens and cost. `unpriced` replies have no known price and are not in the cost."""

    replies: int = 0
    unpriced: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    micros: int = 0

    @property
    def cost(self) -> str:
        """The cost in US dollars, as decimal text."""
        return to_text(Limit.MICROS, self.micros)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedUsage(UsageTotals):
    """The usage of an agent (with its sub-agents), model, person or day of this name."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentUsage(UsageTotals):
    """The usage of one model by an agent with its sub-agents."""

    agent: str
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedDay:
    """The runs that ended on a day, by status."""

    day: date
    statuses: Mapping[str, int]


def read_usage(
    key: UsageKey, since: date, until: date, only: Mapping[UsageKey, str] | None = None
) -> tuple[NamedUsage, ...]:
    """Add up the usage from `since` to before `until`, the costliest first; days are in order.

    `only` narrows it to an agent, model or person. The caller may read every run.
    """
    rows: QuerySet[DailyUsage, Any] = DailyUsage.objects.filter(
        Q(**{name.column: text for name, text in (only or {}).items()}),
        day__gte=since,
        day__lt=until,
    )
    sums: Any = rows.values(name=F(key.column)).annotate(**{name: Sum(name) for name in COUNTS})
    order = ("name",) if key is UsageKey.DAY else ("-micros", "-replies", "name")
    return tuple(NamedUsage(**{**row, "name": str(row["name"])}) for row in sums.order_by(*order))


def read_day(day: date) -> tuple[AgentUsage, ...]:
    """Return the usage of one day by agent and model."""
    sums = DailyUsage.objects.filter(day=day).values("agent", "model")
    rows = sums.annotate(**{name: Sum(name) for name in COUNTS}).order_by("agent", "model")
    return tuple(AgentUsage(**row) for row in rows)


def read_daily_cost(key: UsageKey, since: date, until: date) -> Mapping[date, Mapping[str, int]]:
    """Return the micros of each day by agent, model or person. The caller may read every run."""
    rows = DailyUsage.objects.filter(day__gte=since, day__lt=until)
    sums = rows.values_list("day", key.column).annotate(cost=Sum("micros")).order_by("day")
    costs: dict[date, dict[str, int]] = {}
    for day, name, cost in sums:
        costs.setdefault(day, {})[name] = cost
    return costs


def read_ended_days(since: date, until: date) -> tuple[EndedDay, ...]:
    """Return the days from `since` to before `until` on which runs ended, in order."""
    rows = DailyRuns.objects.filter(day__gte=since, day__lt=until).order_by("day")
    return tuple(EndedDay(day=row.day, statuses=row.statuses) for row in rows)


def read_runs_usage(runs: Collection[UUID]) -> Mapping[UUID, UsageTotals]:
    """Return the usage of each of these runs that the sweeper has counted."""
    rows = RunUsage.objects.filter(pk__in=runs)
    return {
        row.run_id: UsageTotals(**{name: getattr(row, name) for name in COUNTS}) for row in rows
    }

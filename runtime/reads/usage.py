"""Reads what runs used and how they ended, as the sweeper counted it by day. A day is one in UTC.

The cost of a page is that of its days, agents, models and people, and not of its runs.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from django.db.models import F, Q, QuerySet, Sum

from runtime.core.documents.budget_text import to_text
from runtime.core.values.budgets import Limit
from runtime.models import DailyRuns, DailyUsage, RunUsage

COUNTS = ("replies", "unpriced", "input_tokens", "output_tokens", "micros")

RECOUNTED = timedelta(days=1)  # before the newest day: a run may end again, a decision be undone


def recount_from(newest: date | None) -> datetime:
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

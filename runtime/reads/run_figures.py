"""Computes the figures of an agent from its last runs: how they ended, how long they took, and what people decided."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil
from typing import Any

from django.db import connection
from django.db.models import Q
from pydantic import TypeAdapter, ValidationError

from runtime.core.run.continuation import RunStatus
from runtime.core.run.retries import RateLimitWait
from runtime.models import Run
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
        return _percent(self.succeeded, self.succeeded + self.failed)

    @property
    def approval(self) -> int | None:
        """The share of approved calls among those that people approved or denied, in percent."""
        return _percent(self.approved, self.approved + self.denied)


def agent_figures(readable: Q, agent: str) -> RunFigures:
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
        verdicts = wiring.approvals().verdicts([run for run, _, _, _ in rows])
    return RunFigures(
        runs=len(rows),
        succeeded=sum(statuses[status] for status in _GOOD),
        failed=sum(statuses[status] for status in _BAD),
        median=_quantile(times, 0.5),
        p95=_quantile(times, 0.95),
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
    """The `calls` of a model that wait for its provider. `next_at` is the time of the next one.

    The first waits since `since`; `tries` is how often the provider has put off one of them at most.
    """

    model: str
    calls: int
    next_at: datetime
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


def limited_models() -> tuple[LimitedModel, ...]:
    """Count the waiting calls by model. The caller has checked that the actor may read every run."""
    with connection.cursor() as cursor:
        cursor.execute(_BY_MODEL, {"most": MOST, "statuses": [str(status) for status in MAY_WAIT]})
        rows = cursor.fetchall()
    return tuple(
        LimitedModel(model=model, calls=calls, next_at=next_at, since=since, tries=tries)
        for model, calls, next_at, since, tries in rows
    )


def _percent(share: int, total: int) -> int | None:
    return round(100 * share / total) if total else None


def _quantile(times: Sequence[timedelta], share: float) -> timedelta | None:
    """Return the smallest time that at least this share of the times do not exceed."""
    return times[ceil(share * len(times)) - 1] if times else None

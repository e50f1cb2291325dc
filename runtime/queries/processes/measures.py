"""Reads what workers and sweepers have counted, and how long runs and signals wait for a worker."""

from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import connection
from django.db.models import DurationField, ExpressionWrapper, F
from django.db.models.functions import Now

from runtime.models import SweeperLoop, WorkerProcess
from runtime.queries.processes.workers import ALIVE, LATE_SECONDS
from runtime.store import leases
from runtime.store.tables import kill_switches
from runtime.store.workers import OUTCOMES, quantile

SHOWN = timedelta(minutes=5)  # how long a worker is listed after its last heartbeat
OVERDUE_SECONDS = 60  # after which a due run should have been dispatched
SHARES = (0.5, 0.95, 0.99)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerMeasures:
    """A worker process, the seconds since its last heartbeat, and its counts as the heartbeat stored them."""

    worker: str
    host: str
    process: int
    beat_age: float
    measures: dict[str, Any]

    @property
    def is_alive(self) -> bool:
        """Tell whether it has renewed its lease within ALIVE."""
        return self.beat_age < ALIVE.total_seconds()

    @property
    def steps(self) -> int:
        """The number of committed steps."""
        return sum(self.measures.get("buckets", ()))

    @property
    def lags(self) -> tuple[float | None, ...]:
        """The time within which half, 95 % and 99 % of the steps were committed, in milliseconds."""
        found = (quantile(self.measures, share) for share in SHARES)
        return tuple(None if lag is None else 1000 * lag for lag in found)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOutcomes:
    """How the calls of one tool ended."""

    returned: int
    failed: int
    in_doubt: int

    @property
    def errors(self) -> int:
        """The share of calls that failed or are in doubt, in percent."""
        return round(100 * (self.failed + self.in_doubt) / (self.all or 1))

    @property
    def all(self) -> int:
        """The number of calls that ended."""
        return self.returned + self.failed + self.in_doubt


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopMeasures:
    """A loop of the sweeper: the seconds of its last round, and since then."""

    name: str
    took: float | None
    age: float
    late_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What waits for a worker. `queued` runs have not begun; ages are in seconds, 0 if nothing waits."""

    due: int
    overdue: int
    queued: int
    queued_age: float
    signal_age: float
    lease_losses: int
    objects: int
    object_bytes: int
    dropped_objects: int


def worker_measures() -> tuple[WorkerMeasures, ...]:
    """Return each worker that has renewed its lease within SHOWN, the oldest first."""
    rows = WorkerProcess.objects.filter(beat_at__gt=Now() - SHOWN).order_by("started_at", "id")
    return tuple(
        WorkerMeasures(
            worker=str(row.id), host=row.host, process=row.process,
            beat_age=row.age.total_seconds(), measures=row.measures,
        )
        for row in rows.annotate(age=_since("beat_at"))
    )  # fmt: skip


def call_outcomes() -> dict[str, CallOutcomes]:
    """Count the outcomes of the calls of each tool, over the workers of `worker_measures` since each started."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for worker in worker_measures():
        for name, many in worker.measures.get("calls", {}).items():
            tool, outcome = name.rsplit(" ", 1)
            found[tool][outcome] += many
    return {
        tool: CallOutcomes(**{outcome: many[outcome] for outcome in OUTCOMES.values()})
        for tool, many in found.items()
    }


def loop_measures() -> tuple[LoopMeasures, ...]:
    """Return each loop of the sweepers that has ever completed."""
    rows = SweeperLoop.objects.filter(name__in=LATE_SECONDS).order_by("name")
    return tuple(
        LoopMeasures(
            name=row.name, took=row.took, age=row.age.total_seconds(),
            late_after=LATE_SECONDS[row.name],
        )
        for row in rows.annotate(age=_since("done_at"))
    )  # fmt: skip


def backlog() -> Backlog:
    """Count what waits for a worker. Runs that a worker has, and those that a kill switch blocks, do not wait."""
    with connection.cursor() as cursor:
        cursor.execute(_BACKLOG, [OVERDUE_SECONDS])
        return Backlog(**dict(zip(Backlog.__slots__, cursor.fetchone(), strict=True)))


def _since(name: str) -> "ExpressionWrapper[Any]":
    return ExpressionWrapper(Now() - F(name), DurationField())


# A sweeper that sends a hint makes the run due a few seconds later, so a queued run may be due soon.
_BACKLOG = f"""
    WITH waiting AS MATERIALIZED (
        SELECT due_at, status, created_at FROM runtime_run
        WHERE due_at <= (SELECT clock_timestamp() + interval '{leases.RESEND_SECONDS} seconds')
            AND ended_at IS NULL AND (owner IS NULL OR NOT {leases.LIVE}) AND NOT ({kill_switches.BLOCKS_RUN}))
    SELECT count(*) FILTER (WHERE due_at <= clock_timestamp()),
        count(*) FILTER (WHERE due_at < clock_timestamp() - %s * interval '1 second'),
        count(*) FILTER (WHERE status = 'queued'),
        coalesce(extract(epoch FROM clock_timestamp() - min(created_at) FILTER (WHERE status = 'queued')), 0)::float,
        (SELECT coalesce(greatest(extract(epoch FROM clock_timestamp() - min(effective_at)), 0), 0)::float
            FROM runtime_signal JOIN runtime_run ON runtime_run.id = run_id
            WHERE due_at IS NOT NULL AND effective_at <= clock_timestamp()),
        (SELECT count(*) FROM runtime_lostlease),
        (SELECT count(*) FROM runtime_storedblob WHERE place IS NOT NULL),
        (SELECT coalesce(sum(size), 0)::bigint FROM runtime_storedblob WHERE place IS NOT NULL),
        (SELECT count(*) FROM runtime_droppedobject)
    FROM waiting
"""

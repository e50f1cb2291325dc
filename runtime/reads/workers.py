"""Tells whether worker and sweeper processes are alive and do their work in time."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import chain
from typing import Any

from django.db import connection
from django.db.models import DateTimeField, DurationField, ExpressionWrapper, F, Func
from django.db.models.functions import Now

from runtime.models import SweeperLoop, WorkerProcess
from runtime.ports import wiring
from runtime.reads.run_rows import RunDetail
from runtime.reads.transcript import Transcript
from runtime.store import leases
from runtime.store.tables import kill_switches, trigger_sources
from runtime.store.workers import estimate_quantile, name_sweeper

ALIVE = timedelta(seconds=10)

# After how many seconds a sweeper loop is late. Due runs, schedules, triggers, folders and streams are looked at every
# second, buckets every ten; pending requests and the object store every minute; the other loops run every hour.
LATE_SECONDS = {
    "due_runs": 60,
    "schedules": 120,
    "triggers": 120,
    **dict.fromkeys(trigger_sources.LOOPS.values(), 120),
    "partitions": 7_200,
    "retention": 7_200,
    "archive": 7_200,
    "history": 120,
    "trials": 120,
    "ledger": 7_200,
    "outbox": 120,
    "objects": 600,
    "requests": 600,
    "rollups": 600,
}
SHOWN = timedelta(minutes=5)  # how long a worker is listed after its last heartbeat
OVERDUE_SECONDS = 60  # after which a due run should have been dispatched
SHARES = (0.5, 0.95, 0.99)

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


def has_live_worker(within: timedelta, host: str | None = None, *, isolated: bool = False) -> bool:
    """Tell whether a worker (of that host) has renewed its lease within `within`, by the database's clock.

    A worker with hung tools does not count: it exits as soon as it can.
    Beats from before the start of Postgres do not count: after a power loss they all look recent.
    """
    began_at = Func(function="pg_postmaster_start_time", output_field=DateTimeField())
    alive = WorkerProcess.objects.filter(
        beat_at__gt=Now() - within, beat_at__gte=began_at, isolated=isolated, hung=False
    )
    return (alive if host is None else alive.filter(host=host)).exists()


def count_live_workers(within: timedelta) -> int:
    """Count the processes that have renewed their lease within `within` and can take any run.

    Those with hung tools cannot, nor those that advance only runs which may kill them.
    """
    return WorkerProcess.objects.filter(
        beat_at__gt=Now() - within, hung=False, isolated=False
    ).count()


def read_live_versions(within: timedelta) -> dict[str, frozenset[str]]:
    """Return the versions of each agent in live workers that can take any run, by agent name."""
    versions: dict[str, set[str]] = {}
    alive = WorkerProcess.objects.filter(beat_at__gt=Now() - within, isolated=False)
    for agents in alive.values_list("agents", flat=True):
        for name, fingerprint in agents.items():
            versions.setdefault(name, set()).add(fingerprint)
    return {name: frozenset(fingerprints) for name, fingerprints in versions.items()}


def find_agents_without_worker(run: RunDetail, transcript: Transcript) -> tuple[str, ...] | None:
    """Return the agents of an active run that no live worker has, or only in older versions than the run has used.

    Return None if no worker is alive at all.
    """
    if run.ended:
        return ()
    live = read_live_versions(ALIVE)
    if not live:
        return None
    needed = {frame.agent: frame.fingerprint for frame in transcript.frames() if not frame.outcome}
    return tuple(
        name
        for name, fingerprint in (needed or {run.agent: ""}).items()
        if name not in live
        or wiring.resolve_catalogue().is_newer(name, fingerprint, than=live[name])
    )


def with_missing_agents(runs: Sequence[RunDetail]) -> tuple[RunDetail, ...]:
    """Return active runs with the agents that no live worker has: the first one, and those that wait at a gate.

    It reads no journal, so it finds no versions. None is missing if no worker is alive at all.
    """
    live = read_live_versions(ALIVE) if any(not run.ended for run in runs) else {}
    if not live:
        return tuple(runs)
    checked = []
    for run in runs:
        at_gates = (gate.path[:-1] if gate.tool else gate.path for gate in run.gates)
        agents = dict.fromkeys((run.agent, *chain.from_iterable(at_gates)))
        missing = tuple(name for name in agents if name not in live)
        checked.append(run if run.ended else replace(run, without_worker=missing))
    return tuple(checked)


def has_live_sweeper(within: timedelta) -> bool:
    """Tell whether a sweeper on this host has dispatched due runs within `within`."""
    return SweeperLoop.objects.filter(name=name_sweeper(), done_at__gt=Now() - within).exists()


def list_late_loops() -> tuple[str, ...]:
    """Return the names of sweeper loops that are late, across all sweepers."""
    age = ExpressionWrapper(Now() - F("done_at"), DurationField())
    ages = dict(SweeperLoop.objects.values_list("name", age))
    return tuple(
        name
        for name, seconds in LATE_SECONDS.items()
        if name not in ages or ages[name] > timedelta(seconds=seconds)
    )


def has_month() -> bool:
    """Tell whether the journal has a partition for this month. The sweeper creates it two months ahead."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT to_regclass('runtime_journalentry_'"
            " || to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY_MM')) IS NOT NULL"
        )
        row = cursor.fetchone()
    return bool(row[0])


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
        lags = (estimate_quantile(self.measures, share) for share in SHARES)
        return tuple(None if lag is None else 1000 * lag for lag in lags)


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


def list_worker_measures() -> tuple[WorkerMeasures, ...]:
    """Return each worker that has renewed its lease within SHOWN, the oldest first."""
    rows = WorkerProcess.objects.filter(beat_at__gt=Now() - SHOWN).order_by("started_at", "id")
    return tuple(
        WorkerMeasures(
            worker=str(row.id), host=row.host, process=row.process,
            beat_age=row.age.total_seconds(), measures=row.measures,
        )
        for row in rows.annotate(age=_measure_age("beat_at"))
    )  # fmt: skip


def count_call_outcomes() -> dict[str, CallOutcomes]:
    """Count the outcomes of the calls of each tool, over the workers of `list_worker_measures` since each started."""
    by_tool: dict[str, Counter[str]] = defaultdict(Counter)
    for worker in list_worker_measures():
        for name, many in worker.measures.get("calls", {}).items():
            tool, outcome = name.rsplit(" ", 1)
            by_tool[tool][outcome] += many
    return {
        tool: CallOutcomes(
            returned=many["returned"], failed=many["failed"], in_doubt=many["in_doubt"]
        )
        for tool, many in by_tool.items()
    }


def list_loop_measures() -> tuple[LoopMeasures, ...]:
    """Return each loop of the sweepers that has ever completed."""
    rows = SweeperLoop.objects.filter(name__in=LATE_SECONDS).order_by("name")
    return tuple(
        LoopMeasures(
            name=row.name, took=row.took, age=row.age.total_seconds(),
            late_after=LATE_SECONDS[row.name],
        )
        for row in rows.annotate(age=_measure_age("done_at"))
    )  # fmt: skip


def count_backlog() -> Backlog:
    """Count what waits for a worker. Runs that a worker has, and those that a kill switch blocks, do not wait."""
    with connection.cursor() as cursor:
        cursor.execute(_BACKLOG, [OVERDUE_SECONDS])
        return Backlog(**dict(zip(Backlog.__slots__, cursor.fetchone(), strict=True)))


def _measure_age(name: str) -> "ExpressionWrapper[Any]":
    return ExpressionWrapper(Now() - F(name), DurationField())

"""Tells whether worker and sweeper processes are alive and do their work in time."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import chain

from django.db import connection
from django.db.models import DateTimeField, DurationField, ExpressionWrapper, F, Func
from django.db.models.functions import Now

from runtime.models import SweeperLoop, WorkerProcess
from runtime.ports import wiring
from runtime.queries.runs import RunDetail
from runtime.queries.transcript.transcript import Transcript
from runtime.store.workers import sweeper_name

ALIVE = timedelta(seconds=10)

# After how many seconds a sweeper loop is late. Due runs, schedules, triggers, folders and streams are looked at every
# second, buckets every ten; mail, pending requests and the object store every minute; the other loops run every hour.
LATE_SECONDS = {
    "due_runs": 60,
    "schedules": 120,
    "triggers": 120,
    "folders": 120,
    "streams": 120,
    "buckets": 120,
    "partitions": 7_200,
    "retention": 7_200,
    "archive": 7_200,
    "history": 120,
    "trials": 120,
    "ledger": 7_200,
    "mail": 600,
    "objects": 600,
    "requests": 600,
}


def worker_beats(within: timedelta, host: str | None = None, *, isolated: bool = False) -> bool:
    """Tell whether a worker (of that host) has renewed its lease within `within`, by the database's clock.

    A worker with hung tools does not count: it exits as soon as it can.
    Beats from before the start of Postgres do not count: after a power loss they all look recent.
    """
    began_at = Func(function="pg_postmaster_start_time", output_field=DateTimeField())
    alive = WorkerProcess.objects.filter(
        beat_at__gt=Now() - within, beat_at__gte=began_at, isolated=isolated, hung=False
    )
    return (alive if host is None else alive.filter(host=host)).exists()


def live_workers(within: timedelta) -> int:
    """Count the processes that have renewed their lease within `within`, without those with hung tools."""
    return WorkerProcess.objects.filter(beat_at__gt=Now() - within, hung=False).count()


def live_versions(within: timedelta) -> dict[str, frozenset[str]]:
    """Return the versions of each agent in live workers, by agent name."""
    found: dict[str, set[str]] = {}
    alive = WorkerProcess.objects.filter(beat_at__gt=Now() - within)
    for agents in alive.values_list("agents", flat=True):
        for name, fingerprint in agents.items():
            found.setdefault(name, set()).add(fingerprint)
    return {name: frozenset(fingerprints) for name, fingerprints in found.items()}


def agents_without_worker(run: RunDetail, transcript: Transcript) -> tuple[str, ...]:
    """Return the agents of an active run that no live worker has, or only in older versions than the run has used.

    Return none if no worker is alive at all; the health check reports that.
    """
    live = live_versions(ALIVE)
    if run.ended or not live:
        return ()
    needed = {frame.agent: frame.fingerprint for frame in transcript.frames() if not frame.outcome}
    return tuple(
        name
        for name, fingerprint in (needed or {run.agent: ""}).items()
        if name not in live or wiring.catalogue().is_newer(name, fingerprint, than=live[name])
    )


def with_missing_agents(runs: Sequence[RunDetail]) -> tuple[RunDetail, ...]:
    """Return active runs with the agents that no live worker has: the first one, and those that wait at a gate.

    It reads no journal, so it finds no versions. None is missing if no worker is alive at all.
    """
    live = live_versions(ALIVE) if any(not run.ended for run in runs) else {}
    return tuple(
        replace(run, without_worker=tuple(name for name in _agents(run) if name not in live))
        if live and not run.ended
        else run
        for run in runs
    )


def _agents(run: RunDetail) -> tuple[str, ...]:
    at_gates = (gate.path[:-1] if gate.tool else gate.path for gate in run.gates)
    return tuple(dict.fromkeys((run.agent, *chain.from_iterable(at_gates))))


def sweeper_sweeps(within: timedelta) -> bool:
    """Tell whether a sweeper on this host has dispatched due runs within `within`."""
    return SweeperLoop.objects.filter(name=sweeper_name(), done_at__gt=Now() - within).exists()


def late_loops() -> tuple[str, ...]:
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

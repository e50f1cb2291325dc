"""Whether a process is there to advance runs, to wake them, and to keep the journal's partitions."""

from datetime import timedelta

from django.db import connection
from django.db.models import DateTimeField, DurationField, ExpressionWrapper, F, Func
from django.db.models.functions import Now

from runtime.models import Loop, Worker
from runtime.ports import wiring
from runtime.queries.runs import RunDetail
from runtime.queries.transcript.views import Transcript
from runtime.store.workers import sweeper_name

ALIVE = timedelta(seconds=10)

# When a loop of the sweeper is late: due runs are looked for every second, the rest is done every hour.
LATE_SECONDS = {"due_runs": 60, "partitions": 7_200, "retention": 7_200, "ledger": 7_200}


def worker_beats(within: timedelta, host: str | None = None, *, isolated: bool = False) -> bool:
    """Whether a worker (of that host) last beat no longer than `within` ago, by the database's clock.

    One whose tools hang does not count: it ends as soon as it can.
    A beat before Postgres started says nothing: after a loss of power all are as young as the loss.
    """
    began_at = Func(function="pg_postmaster_start_time", output_field=DateTimeField())
    alive = Worker.objects.filter(
        beat_at__gt=Now() - within, beat_at__gte=began_at, isolated=isolated, hung=False
    )
    return (alive if host is None else alive.filter(host=host)).exists()


def live_versions(within: timedelta) -> dict[str, frozenset[str]]:
    """The versions of each agent that living workers have, by the agent's name."""
    found: dict[str, set[str]] = {}
    alive = Worker.objects.filter(beat_at__gt=Now() - within)
    for agents in alive.values_list("agents", flat=True):
        for name, fingerprint in agents.items():
            found.setdefault(name, set()).add(fingerprint)
    return {name: frozenset(fingerprints) for name, fingerprints in found.items()}


def agents_without_worker(run: RunDetail, transcript: Transcript) -> tuple[str, ...]:
    """The agents of a run that lives which no living worker has, or only in versions older than it has met.

    Nothing if no worker lives: that is another trouble.
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


def sweeper_sweeps(within: timedelta) -> bool:
    """Whether a sweeper of this host last looked for due runs no longer than `within` ago."""
    return Loop.objects.filter(name=sweeper_name(), done_at__gt=Now() - within).exists()


def late_loops() -> tuple[str, ...]:
    """The loops of the sweeper that did not do their work in time, whichever sweeper it was."""
    age = ExpressionWrapper(Now() - F("done_at"), DurationField())
    ages = dict(Loop.objects.values_list("name", age))
    return tuple(
        name
        for name, seconds in LATE_SECONDS.items()
        if name not in ages or ages[name] > timedelta(seconds=seconds)
    )


def has_month() -> bool:
    """Whether the journal has a partition for this month. The sweeper makes it two months ahead."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT to_regclass('runtime_journalentry_'"
            " || to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY_MM')) IS NOT NULL"
        )
        row = cursor.fetchone()
    return bool(row[0])

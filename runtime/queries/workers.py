"""Whether anybody is there to advance runs, and to wake them."""

from datetime import timedelta

from django.db import connection
from django.db.models.functions import Now

from runtime.models import Worker
from runtime.workers import sweeper_name


def worker_beats(within: timedelta, host: str | None = None) -> bool:
    """Whether a worker (of that host) last beat no longer than `within` ago, by the database's clock."""
    alive = Worker.objects.filter(beat_at__gt=Now() - within)
    return (alive if host is None else alive.filter(host=host)).exists()


def sweeper_sweeps(within: timedelta) -> bool:
    """Whether a sweeper of this host last asked Postgres something no longer than `within` ago."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = %s"
            " AND datname = current_database() AND query_start > clock_timestamp() - make_interval(secs => %s))",
            [sweeper_name(), within.total_seconds()],
        )
        row = cursor.fetchone()
    return bool(row[0])

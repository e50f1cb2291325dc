"""The database's clock, by which everything is early or late, whatever this machine's says."""

from datetime import UTC, datetime

from django.db import connection


def now() -> datetime:
    """The moment itself, not the start of the transaction: somebody may have waited for a lock."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        return told(cursor.fetchone()[0])


def told(moment: datetime) -> datetime:
    """The `clock_timestamp()` that came with the answer to another question."""
    return moment.astimezone(UTC)

"""Reads the database's clock. All deadlines are compared with it and not with the clock of this machine."""

from datetime import UTC, datetime

from django.db import connection


def read_time() -> datetime:
    """Return the present time, not the start of the transaction, which may have waited for a lock."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        at: datetime = cursor.fetchone()[0]
        return at.astimezone(UTC)


def to_wire(at: datetime) -> str:
    """Write a time in UTC, always to the microsecond, so that two of them compare as text too."""
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")

"""Creates journal partitions two months ahead, and drops empty ones of past months."""

import logging
import threading

import psycopg
from psycopg import sql

from runtime.store.pool import Connection

log = logging.getLogger(__name__)


def maintain(connection: Connection, stop: threading.Event) -> None:
    """Create missing partitions and drop empty ones."""
    make(connection)
    for name in drop_empty(connection):
        log.info("Journal partition %s: dropped, it was empty", name)


def make(connection: Connection) -> None:
    """Create the partitions of this month and the next two. Cheap if they exist.

    Entries of these months in the DEFAULT partition are moved. If the lock is not free, raise
    psycopg.errors.LockNotAvailable: steps must not wait.
    """
    with connection.transaction():
        connection.execute("SET LOCAL lock_timeout = '500ms'")
        connection.execute("SELECT signoff_make_partitions(2)")


def empty(connection: Connection) -> list[str]:
    """List the partitions without entries whose month ended more than a day ago."""
    rows = connection.execute(
        """
        SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'runtime_journalentry'::regclass
            AND c.relname ~ '^runtime_journalentry_[0-9]{4}_[0-9]{2}$'
            AND c.relname < 'runtime_journalentry_' || to_char(
                (clock_timestamp() - interval '1 day') AT TIME ZONE 'UTC', 'YYYY_MM')
        ORDER BY c.relname
        """
    )
    return [name for (name,) in rows.fetchall() if _is_empty(connection, name)]


def drop_empty(connection: Connection) -> list[str]:
    """Drop empty partitions whose lock is free, so that steps do not wait. Returns the dropped ones."""
    return [name for name in empty(connection) if _drop(connection, name)]


def _drop(connection: Connection, name: str) -> bool:
    try:
        with connection.transaction():
            connection.execute("SET LOCAL lock_timeout = '500ms'")
            row = connection.execute("SELECT signoff_drop_partition(%s)", (name,)).fetchone()
            return row == (True,)
    except psycopg.errors.LockNotAvailable:
        return False


def _is_empty(connection: Connection, name: str) -> bool:
    query = sql.SQL("SELECT NOT EXISTS (SELECT FROM {})").format(sql.Identifier(name))
    return connection.execute(query).fetchone() == (True,)

"""The journal's partitions: made two months ahead, dropped when their month is over and no entry is left in it."""

import logging
import threading

import psycopg
from psycopg import sql

from runtime.store.pool import Connection

log = logging.getLogger(__name__)


def maintain(connection: Connection, stop: threading.Event) -> None:
    """Make what is missing and drop what is empty."""
    make(connection)
    for name in drop_empty(connection):
        log.info("the journal's %s is empty and dropped", name)


def make(connection: Connection) -> None:
    """Keep this month's partition and those of the next two; cheap when they are there.

    Entries of these months that are in the DEFAULT partition are moved. Raises psycopg.errors.LockNotAvailable
    rather than have steps wait.
    """
    with connection.transaction():
        connection.execute("SET LOCAL lock_timeout = '500ms'")
        connection.execute("SELECT abeyance_make_partitions(2)")


def empty(connection: Connection) -> list[str]:
    """The months that were over a day ago and have no entry."""
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
    """Drop them, unless that would have steps wait. Returns which; the rest goes another time."""
    return [name for name in empty(connection) if _drop(connection, name)]


def _drop(connection: Connection, name: str) -> bool:
    try:
        with connection.transaction():
            connection.execute("SET LOCAL lock_timeout = '500ms'")
            found = connection.execute("SELECT abeyance_drop_partition(%s)", (name,)).fetchone()
            return found == (True,)
    except psycopg.errors.LockNotAvailable:
        return False


def _is_empty(connection: Connection, name: str) -> bool:
    query = sql.SQL("SELECT NOT EXISTS (SELECT FROM {})").format(sql.Identifier(name))
    return connection.execute(query).fetchone() == (True,)

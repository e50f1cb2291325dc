"""Shortens the journals of long runs that go on, and looks after the partitions of all journals.

A frame that is compacted begins a new base: the continuation there, and all later ones, need no earlier entry. The
sweeper deletes the entries below the newest base that are older than SIGNOFF_HISTORY_DAYS. It verifies and folds them
first, and stores the state after the last one with a MAC, next to the prune mark. From there the rest is verified. If
runs are archived, it writes the entries to the archive before.

Mark, state and deletion are one transaction, which holds the run's row for the deletion alone. So a killed sweeper
leaves a whole journal, and of two sweepers the second one finds another mark.
"""

import logging
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from uuid import UUID

import psycopg.errors
from django.conf import settings
from psycopg import sql

from runtime.core.run.continuation import Continuation
from runtime.core.values.errors import NewerSchema
from runtime.errors import KeyMissing, ObjectStoreDown, Tampered, TooLarge
from runtime.store import archived_entries, pool, runs
from runtime.store.pool import Connection
from runtime.store.sealed_files import Written
from runtime.store.tables import continuations, journal, pruning
from runtime.store.tables.pruning import PruneMark

log = logging.getLogger(__name__)

RUNS = 100  # of one query
ENTRIES = 1_000  # that one transaction deletes
LEAST = 200  # entries below a base that are deleted before the base itself is old enough

# Live runs with entries below their base, and the newest entry among the next LEAST of these.
_SHORTENABLE = """
    SELECT run.id, e.position, e.body, e.mac, e.key_id, e.packed
    FROM runtime_run run
    JOIN runtime_compactionbase b ON b.run_id = run.id
    LEFT JOIN runtime_pruning p ON p.run_id = run.id
    JOIN runtime_journalentry e ON e.run_id = run.id
        AND e.position = least(coalesce(p.position, 0) + %(least)s, b.position - 1)
    WHERE run.ended_at IS NULL AND run.status <> 'quarantined' AND run.legal_hold IS NULL AND run.base >= b.position
        AND b.position > coalesce(p.position, 0) + 1 AND run.id > %(after)s
    ORDER BY run.id LIMIT %(runs)s
"""


def shorten_all(connection: Connection, stop: threading.Event) -> int:
    """Shorten every journal that is due, until `stop`. Returns the number of deleted entries."""
    days: float | None = settings.SIGNOFF_HISTORY_DAYS
    if days is None:
        return 0
    before, removed = pool.read_clock(connection) - timedelta(days=days), 0
    for run in _list_due_runs(connection, before, stop):
        while not stop.is_set() and (deleted := _shorten_one(connection, run, before)):
            removed += deleted
    if removed:
        log.info("Removed %d old entries of runs that go on", removed)
    return removed


def shorten(connection: Connection, run: UUID, before: datetime) -> int:
    """Delete the next entries below the run's base that are older than `before`. Returns their number.

    0 if there are none, another sweeper was faster, or the run has ended. Raises Tampered, KeyMissing, NewerSchema,
    ObjectStoreDown or TooLarge, with nothing deleted.
    """
    base = continuations.load_base(connection, run)
    history = journal.read_history(connection, run, limit=ENTRIES)
    last: Continuation | None = None
    rows: list[journal.Row] = []
    if base is None:
        return 0
    runs.require_no_hold(run)
    for sealed, entry in history.entries:
        if entry.at >= before or sealed.position >= base.position:
            break
        last = journal.fold_entry(last or history.start, sealed, entry)
        rows.append(sealed.row)
    if last is None:
        return 0
    file: tuple[str, Written] | None = None
    if settings.SIGNOFF_ARCHIVE:
        key = archived_entries.reserve(connection, run, first=history.mark.position + 1)
        file = key, archived_entries.write(key, run, history.mark, rows)
    if not _delete(connection, history.mark, last, file):
        if file is not None:
            archived_entries.discard(connection, file[0])
        return 0
    return last.position - history.mark.position


def maintain_partitions(connection: Connection, stop: threading.Event) -> None:
    """Create missing partitions and drop empty ones."""
    make_partitions(connection)
    for name in drop_empty_partitions(connection):
        log.info("Journal partition %s: dropped, it was empty", name)


def make_partitions(connection: Connection) -> None:
    """Create the partitions of this month and the next two. Cheap if they exist.

    Entries of these months in the DEFAULT partition are moved. If the lock is not free, raise
    psycopg.errors.LockNotAvailable: steps must not wait.
    """
    with connection.transaction():
        connection.execute("SET LOCAL lock_timeout = '500ms'")
        connection.execute("SELECT signoff_make_partitions(2)")


def list_empty_partitions(connection: Connection) -> list[str]:
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
    empty = []
    for (name,) in rows.fetchall():
        query = sql.SQL("SELECT NOT EXISTS (SELECT FROM {})").format(sql.Identifier(name))
        if connection.execute(query).fetchone() == (True,):
            empty.append(name)
    return empty


def drop_empty_partitions(connection: Connection) -> list[str]:
    """Drop empty partitions whose lock is free, so that steps do not wait. Returns the dropped ones."""
    dropped = []
    for name in list_empty_partitions(connection):
        try:
            with connection.transaction():
                connection.execute("SET LOCAL lock_timeout = '500ms'")
                row = connection.execute("SELECT signoff_drop_partition(%s)", (name,)).fetchone()
        except psycopg.errors.LockNotAvailable:
            continue
        if row == (True,):
            dropped.append(name)
    return dropped


def _delete(
    connection: Connection, mark: PruneMark, last: Continuation, file: tuple[str, Written] | None
) -> bool:
    """Delete the entries up to `last`, if the journal still begins after `mark`, and record their file."""
    with connection.transaction():
        connection.execute("SET LOCAL lock_timeout = '1s'")
        if not runs.lock_to_shorten(connection, last.run, base=last.position):
            return False
        if pruning.read(connection, last.run) != mark:
            return False
        pruning.write(connection, last.run, position=last.position, head=last.head, state=last)
        journal.delete_until(connection, last.run, until=last.position)
        if file is not None:
            key, written = file
            archived_entries.record_file(
                connection, key, last=last.position, digest=written.digest, size=written.size
            )
    return True


def _list_due_runs(
    connection: Connection, before: datetime, stop: threading.Event
) -> Iterator[UUID]:
    """Yield the runs whose journals are to be shortened. The times of entries are not verified yet."""
    after = UUID(int=0)
    while not stop.is_set():
        rows = connection.execute(
            _SHORTENABLE, {"after": after, "runs": RUNS, "least": LEAST}
        ).fetchall()
        for run, *row in rows:
            _, body, *_ = journal.unpack_row(*row)
            if journal.read_entry_time(body) < before:
                yield run
        if len(rows) < RUNS:
            return
        after = rows[-1][0]


def _shorten_one(connection: Connection, run: UUID, before: datetime) -> int:
    try:
        return shorten(connection, run, before)
    except (Tampered, KeyMissing) as exc:
        log.critical("Run %s: keeps its history, it does not verify: %s", run, exc)
    except NewerSchema as exc:
        log.warning("Run %s: keeps its history, left to a newer sweeper: %s", run, exc)
    except (ObjectStoreDown, TooLarge) as exc:
        log.error("Run %s: keeps its history, which is archived later: %s", run, exc)
    except psycopg.errors.LockNotAvailable:
        log.info("Run %s: keeps its history for now, its row is locked", run)
    return 0

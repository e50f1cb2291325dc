"""Knows the archived runs, and the key of each one's file in the object store.

The sweeper reserves a row with a new key in a transaction of its own, then writes the file, then deletes the run's data
in the transaction that changes the row. So Postgres knows every file. A key that is no longer needed goes to the
dropped objects, whose objects the sweeper deletes.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from runtime.store.pool import Connection

WRITING, ARCHIVED, RESTORED = "writing", "archived", "restored"

# Between the reservation of a key and the lock of the run no lock shows that a sweeper is at work.
_FRESH = "interval '10 minutes'"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedRunRow:
    """The file of an archived run: its key, the hash of its bytes and their number, and when it was written."""

    place: str
    digest: str
    size: int
    at: datetime


def reserve(connection: Connection, run: UUID) -> str | None:
    """Reserve a new key for the file of a run. Returns None if another sweeper has the run, or it is archived."""
    place = f"runs/{run}-{secrets.token_hex(6)}"
    done = connection.execute(
        f"""
        WITH run AS (SELECT id FROM runtime_run WHERE id = %(run)s FOR NO KEY UPDATE SKIP LOCKED),
        old AS (SELECT place, state, at FROM runtime_archivedrun WHERE run_id = %(run)s),
        free AS (SELECT id FROM run WHERE NOT EXISTS (SELECT FROM old WHERE state = '{ARCHIVED}'
            OR state = '{WRITING}' AND at > clock_timestamp() - {_FRESH})),
        dropped AS (INSERT INTO runtime_droppedobject (place)
            SELECT place FROM old, free WHERE place IS NOT NULL ON CONFLICT DO NOTHING)
        INSERT INTO runtime_archivedrun (run_id, place, state) SELECT id, %(place)s, '{WRITING}' FROM free
        ON CONFLICT (run_id) DO UPDATE SET place = excluded.place, state = excluded.state,
            at = clock_timestamp()
        """,
        {"run": run, "place": place},
    )
    return place if done.rowcount == 1 else None


def keep(
    connection: Connection,
    run: UUID,
    *,
    place: str,
    digest: str,
    size: int,
    contents: Sequence[str],
) -> bool:
    """Record the written file, with the hashes of its contents. Returns False if the key is no longer reserved."""
    done = connection.execute(
        f"""
        UPDATE runtime_archivedrun SET state = '{ARCHIVED}', digest = %s, size = %s, contents = %s,
            at = clock_timestamp()
        WHERE run_id = %s AND place = %s AND state = '{WRITING}'
        """,
        (digest, size, list(contents), run, place),
    )
    return done.rowcount == 1


def of(connection: Connection, run: UUID) -> ArchivedRunRow | None:
    """Return the file of a run, None if it is not archived."""
    row = connection.execute(
        f"""
        SELECT place, digest, size, at FROM runtime_archivedrun WHERE run_id = %s AND state = '{ARCHIVED}'
        """,
        (run,),
    ).fetchone()
    return (
        None if row is None else ArchivedRunRow(place=row[0], digest=row[1], size=row[2], at=row[3])
    )


def holding(connection: Connection, digest: str) -> list[UUID]:
    """List the archived runs whose files have this content."""
    rows = connection.execute(
        f"SELECT run_id FROM runtime_archivedrun WHERE contents @> ARRAY[%s] AND state = '{ARCHIVED}'",
        (digest,),
    )
    return [run for (run,) in rows.fetchall()]


def restored(connection: Connection, run: UUID) -> None:
    """Record that the run is in Postgres again. The sweeper drops its file."""
    connection.execute(
        f"""
        UPDATE runtime_archivedrun SET state = '{RESTORED}', contents = '{{}}', at = clock_timestamp()
        WHERE run_id = %s AND state = '{ARCHIVED}'
        """,
        (run,),
    )


def drop(connection: Connection, run: UUID) -> None:
    """Delete the row of a run whose payloads are erased. The sweeper deletes the file."""
    connection.execute(
        """
        WITH gone AS (DELETE FROM runtime_archivedrun WHERE run_id = %s RETURNING place)
        INSERT INTO runtime_droppedobject (place)
        SELECT place FROM gone WHERE place IS NOT NULL ON CONFLICT DO NOTHING
        """,
        (run,),
    )


def drop_restored(connection: Connection) -> int:
    """Drop the files of runs restored a day ago. Returns how many. Their rows keep the time of the restoration.

    A backup of Postgres from before the restoration still needs the file, and is copied before the files.
    """
    return connection.execute(
        f"""
        WITH old AS (SELECT run_id, place FROM runtime_archivedrun
            WHERE state = '{RESTORED}' AND place IS NOT NULL AND at < clock_timestamp() - interval '1 day'
            FOR UPDATE SKIP LOCKED),
        dropped AS (INSERT INTO runtime_droppedobject (place) SELECT place FROM old ON CONFLICT DO NOTHING)
        UPDATE runtime_archivedrun a SET place = NULL FROM old WHERE a.run_id = old.run_id
        """
    ).rowcount

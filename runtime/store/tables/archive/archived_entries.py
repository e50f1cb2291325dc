"""Knows the files in the object store with removed entries of runs that go on.

As with archived runs, the sweeper reserves a key in a transaction of its own, then writes the file, then deletes the
entries in the transaction that records it. A key that is no longer needed goes to the dropped objects.
"""

import secrets
from dataclasses import dataclass
from uuid import UUID

from runtime.store.pool import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class EntriesFile:
    """One file: the entries `first` to `last`, its key, and the hash of its bytes."""

    first: int
    last: int
    place: str
    digest: str


def reserve(connection: Connection, run: UUID, *, first: int) -> str:
    """Reserve a new key for entries of a run. Keys that a dead sweeper reserved an hour ago are dropped."""
    connection.execute(
        """
        WITH old AS (DELETE FROM runtime_archivedentries
            WHERE run_id = %s AND last IS NULL AND at < clock_timestamp() - interval '1 hour'
            RETURNING place)
        INSERT INTO runtime_droppedobject (place) SELECT place FROM old ON CONFLICT DO NOTHING
        """,
        (run,),
    )
    place = f"entries/{run}-{first}-{secrets.token_hex(6)}"
    connection.execute(
        "INSERT INTO runtime_archivedentries (place, run_id, first) VALUES (%s, %s, %s)",
        (place, run, first),
    )
    return place


def keep(connection: Connection, place: str, *, last: int, digest: str, size: int) -> bool:
    """Record the written file. Returns False if its key is no longer reserved."""
    done = connection.execute(
        """
        UPDATE runtime_archivedentries SET last = %s, digest = %s, size = %s
        WHERE place = %s AND last IS NULL
        """,
        (last, digest, size, place),
    )
    return done.rowcount == 1


def of(connection: Connection, run: UUID, *, after: int = 0) -> list[EntriesFile]:
    """List the files of a run with entries after position `after`, in order."""
    rows = connection.execute(
        """
        SELECT first, last, place, digest FROM runtime_archivedentries
        WHERE run_id = %s AND last > %s ORDER BY first
        """,
        (run, after),
    ).fetchall()
    return [
        EntriesFile(first=first, last=last, place=place, digest=digest)
        for first, last, place, digest in rows
    ]


def described(connection: Connection, run: UUID) -> list[list[object]]:
    """Describe the files of a run for its record: first and last entry, key and digest of each."""
    return [[one.first, one.last, one.place, one.digest] for one in of(connection, run)]


def discard(connection: Connection, place: str) -> None:
    """Drop a key whose file is not needed."""
    _drop(connection, "place = %s AND last IS NULL", place)


def drop_all(connection: Connection, run: UUID) -> None:
    """Drop the files of a run whose payloads are erased."""
    _drop(connection, "run_id = %s", run)


def _drop(connection: Connection, where: str, value: object) -> None:
    connection.execute(
        f"""
        WITH gone AS (DELETE FROM runtime_archivedentries WHERE {where} RETURNING place)
        INSERT INTO runtime_droppedobject (place) SELECT place FROM gone ON CONFLICT DO NOTHING
        """,
        (value,),
    )

"""The archive of entries that a live run no longer needs: writes them as files, and reads them. Each file has a row.

As with archived runs, the sweeper reserves a key in a transaction of its own, then writes the file, then deletes the
entries in the transaction that records it.

A file is sealed and compressed (`sealed_files`). It has the exact text, MAC and key id of each entry, and the MAC of
the entry before the first one, so its entries verify as they did in Postgres.
"""

import json
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from runtime.errors import Tampered
from runtime.store import pool, sealed_files
from runtime.store.pool import Connection
from runtime.store.sealed_files import Written
from runtime.store.tables import journal, objects
from runtime.store.tables.journal import Row
from runtime.store.tables.pruning import PruneMark

_TABLE = "runtime_archivedentries"


@dataclass(frozen=True, slots=True, kw_only=True)
class EntriesFile:
    """One file: the entries `first` to `last`, its key, and the hash of its bytes."""

    first: int
    last: int
    key: str
    digest: str


def reserve(connection: Connection, run: UUID, *, first: int) -> str:
    """Reserve a new key for entries of a run. Keys that a dead sweeper reserved an hour ago are dropped."""
    is_old = "run_id = %s AND last IS NULL AND at < clock_timestamp() - interval '1 hour'"
    objects.drop(connection, _TABLE, is_old, run)
    key = f"entries/{run}-{first}-{secrets.token_hex(6)}"
    connection.execute(
        "INSERT INTO runtime_archivedentries (place, run_id, first) VALUES (%s, %s, %s)",
        (key, run, first),
    )
    return key


def record_file(connection: Connection, key: str, *, last: int, digest: str, size: int) -> bool:
    """Record the written file. Returns False if its key is no longer reserved."""
    cursor = connection.execute(
        """
        UPDATE runtime_archivedentries SET last = %s, digest = %s, size = %s
        WHERE place = %s AND last IS NULL
        """,
        (last, digest, size, key),
    )
    return cursor.rowcount == 1


def list_files(connection: Connection, run: UUID, *, after: int = 0) -> list[EntriesFile]:
    """List the files of a run with entries after position `after`, in order."""
    rows = connection.execute(
        """
        SELECT first, last, place, digest FROM runtime_archivedentries
        WHERE run_id = %s AND last > %s ORDER BY first
        """,
        (run, after),
    ).fetchall()
    return [pool.decode_row(EntriesFile, row) for row in rows]


def describe_files(connection: Connection, run: UUID) -> list[list[object]]:
    """Describe the files of a run for its record: first and last entry, key and digest of each."""
    return [[file.first, file.last, file.key, file.digest] for file in list_files(connection, run)]


def discard(connection: Connection, key: str) -> None:
    """Drop a key whose file is not needed."""
    objects.drop(connection, _TABLE, "place = %s AND last IS NULL", key)


def drop_all(connection: Connection, run: UUID) -> None:
    """Drop the files of a run whose payloads are erased."""
    objects.drop(connection, _TABLE, "run_id = %s", run)


def write(key: str, run: UUID, mark: PruneMark, rows: Sequence[Row]) -> Written:
    """Write the entries that follow the mark under a reserved key. Raises ObjectStoreDown or TooLarge."""
    document = {"previous": mark.head, "entries": [list(row[1:4]) for row in rows]}
    text = json.dumps(document, separators=(",", ":"))
    return sealed_files.write(key, name=make_head_name(run, mark.position + 1), text=text)


def read(connection: Connection, run: UUID, *, after: int = 0) -> Iterator[Row]:
    """Yield the removed entries after position `after`, verified, as position, text, MAC and key id.

    Raises Tampered, KeyMissing or ObjectStoreDown.
    """
    for file in list_files(connection, run, after=after):
        for row in _read(run, file):
            if row[0] > after:
                yield row


def check(
    connection: Connection, run: UUID, mark: PruneMark, expected: list[list[Any]] | None = None
) -> None:
    """Raise Tampered, KeyMissing or ObjectStoreDown unless all files verify, in a row up to the mark.

    The files must be the `expected` ones, if the file of the archived run names them.
    """
    if expected is not None and expected != describe_files(connection, run):
        raise Tampered("the files of removed entries are not those that the file of the run names")
    last: Row | None = None
    for row in read(connection, run):
        if last is not None and row[0] != last[0] + 1:
            raise Tampered(f"the archive lacks entries {last[0] + 1} to {row[0] - 1}")
        last = row
    if last is not None and (last[0], last[2]) != (mark.position, mark.head):
        raise Tampered(f"the archive lacks entries {last[0] + 1} to {mark.position}")


def make_head_name(run: UUID, first: int) -> str:
    """Return the name that the head of a file has."""
    return f"entries of run {run} from {first}"


def _read(run: UUID, file: EntriesFile) -> Iterator[Row]:
    text = sealed_files.read(file.key, name=make_head_name(run, file.first), digest=file.digest)
    document = json.loads(text)
    mark = PruneMark(position=file.first - 1, head=document["previous"])
    rows = ((at, *entry) for at, entry in enumerate(document["entries"], start=file.first))
    last = file.first - 1
    for last, *columns in journal.verify_chain(run, mark, rows):
        yield (last, *columns)
    if last != file.last:
        raise Tampered(f"the object {file.key} ends at entry {last}")

"""Writes removed entries of a live run as files in the object store, and reads them.

A file is sealed and compressed (`sealed_files`). It has the exact text, MAC and key id of each entry, and the MAC of
the entry before the first one, so its entries verify as they did in Postgres.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

from runtime.errors import Tampered
from runtime.store import sealed_files
from runtime.store.pool import Connection
from runtime.store.sealed_files import Written
from runtime.store.tables import journal
from runtime.store.tables.archive import archived_entries
from runtime.store.tables.archive.archived_entries import EntriesFile
from runtime.store.tables.journal import Row
from runtime.store.tables.pruning import PruneMark


def write(place: str, run: UUID, mark: PruneMark, rows: Sequence[Row]) -> Written:
    """Write the entries that follow the mark under a reserved key. Raises ObjectStoreDown or TooLarge."""
    document = {"previous": mark.head, "entries": [list(row[1:4]) for row in rows]}
    text = json.dumps(document, separators=(",", ":"))
    return sealed_files.write(place, name=name(run, mark.position + 1), text=text)


def read(connection: Connection, run: UUID, *, after: int = 0) -> Iterator[Row]:
    """Yield the removed entries after position `after`, verified, as position, text, MAC and key id.

    Raises Tampered, KeyMissing or ObjectStoreDown.
    """
    for file in archived_entries.of(connection, run, after=after):
        for row in _read(run, file):
            if row[0] > after:
                yield row


def check(
    connection: Connection, run: UUID, mark: PruneMark, named: list[list[Any]] | None = None
) -> None:
    """Raise Tampered, KeyMissing or ObjectStoreDown unless all files verify, in a row up to the mark.

    The files must be the `named` ones, if the file of the archived run names them.
    """
    if named is not None and named != archived_entries.described(connection, run):
        raise Tampered("the files of removed entries are not those that the file of the run names")
    last: Row | None = None
    for row in read(connection, run):
        if last is not None and row[0] != last[0] + 1:
            raise Tampered(f"the archive lacks entries {last[0] + 1} to {row[0] - 1}")
        last = row
    if last is not None and (last[0], last[2]) != (mark.position, mark.head):
        raise Tampered(f"the archive lacks entries {last[0] + 1} to {mark.position}")


def _read(run: UUID, file: EntriesFile) -> Iterator[Row]:
    text = sealed_files.read(file.place, name=name(run, file.first), digest=file.digest)
    document = json.loads(text)
    mark = PruneMark(position=file.first - 1, head=document["previous"])
    rows = ((at, *entry) for at, entry in enumerate(document["entries"], start=file.first))
    last = file.first - 1
    for last, *rest in journal.chained(run, mark, rows):
        yield (last, *rest)
    if last != file.last:
        raise Tampered(f"the object {file.place} ends at entry {last}")


def name(run: UUID, first: int) -> str:
    """Return the name that the head of a file has."""
    return f"entries of run {run} from {first}"

"""The archive: writes an ended run as one file, reads it, and puts it back.

The file is that of an exported run (`runtime.core.documents.export_file`), sealed and compressed (`sealed_files`), with
a record of what else is stored: the MAC of each entry, the run's row, its gates, used approvals, late outcomes and lost
leases, and its requests, decisions and audit. The record of tables is a copy for auditors: those rows stay in Postgres.
If the journal was shortened, the file has its beginning, and the record names the files of the removed entries.

Texts that the run remembers of other runs stay in Postgres too, because they are erased with those runs.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from uuid import UUID

from runtime.core.documents import export_file
from runtime.core.documents.blobs import Blob
from runtime.core.documents.export_file import ExportedBeginning, ExportFile
from runtime.core.run.continuation import Continuation
from runtime.core.run.reducer import initial, step
from runtime.core.values.errors import CoreError
from runtime.errors import NotArchived, Tampered
from runtime.keyring.macs import Seal
from runtime.ports import wiring
from runtime.store import runs, sealed_files
from runtime.store.pool import Connection
from runtime.store.tables import (
    blobs,
    continuations,
    journal,
    partial_replies,
    pruning,
    signals,
)
from runtime.store.tables.archive import archived_entries, archived_runs
from runtime.store.tables.archive.archived_runs import ArchivedRunRow
from runtime.store.tables.jobs import edit_previews, prompt_trials, replays
from runtime.store.tables.journal import RemainingEntries, SignedEntry
from runtime.store.tables.pruning import UNPRUNED, PruneMark

# The page of a run reads its file several times.
CACHED_BYTES, CACHED_SECONDS = 256 * 1024, 10  # compressed

# The rows of a run that stay in Postgres, copied for auditors.
_TABLES = ("runtime_gate", "runtime_usedapproval", "runtime_lateoutcome", "runtime_lostlease")


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """A verified file. `row` is the run's row as it was, `entries` are signed as they were, `contents` by digest.

    Entries up to `mark` were removed while the run was live, after which its state was `start`. `removed` are the files
    with them, as `archived_entries.described` returns them.
    """

    run: UUID
    mark: PruneMark
    start: Continuation
    now: Continuation
    row: dict[str, Any]
    removed: list[list[Any]]
    entries: tuple[SignedEntry, ...]
    contents: dict[str, str]

    def history(self) -> RemainingEntries:
        """Return the entries, decoded, as `journal.history` does."""
        entries = ((one, journal.entry_of(one)) for one in self.entries)
        return RemainingEntries(mark=self.mark, start=self.start, entries=entries)


def write(connection: Connection, run: UUID, place: str) -> bool:
    """Write the file of a run, then delete the run's data, in the caller's transaction.

    Returns False if the run may not be archived, or another transaction has it. Raises Tampered, KeyMissing,
    NewerSchema, TooLarge or ObjectStoreDown, with nothing deleted.
    """
    row = runs.lock_to_archive(connection, run)
    if row is None:
        return False
    runs.require_no_hold(run)
    text, contents = _text(connection, run, row)
    written = sealed_files.write(place, name=_name(run), text=text)
    pruning.write(connection, run, position=row["position"], head=row["head"])
    journal.delete_until(connection, run, until=row["position"])
    continuations.delete_base(connection, run)
    blobs.release(connection, run, contents)
    signals.delete_for_run(connection, run)
    partial_replies.delete_for_run(connection, run)
    prompt_trials.delete_for_run(connection, run)
    replays.delete_for_run(connection, run)
    edit_previews.delete_for_run(connection, run)
    runs.archive(connection, run)
    return archived_runs.keep(
        connection, run, place=place, digest=written.digest, size=written.size, contents=contents
    )


def read(connection: Connection, run: UUID) -> Archive | None:
    """Return an archived run, None if it is not archived. Raises Tampered, KeyMissing or ObjectStoreDown."""
    found = archived_runs.of(connection, run)
    return None if found is None else _check_end(connection, _read(run, found))


def read_for_page(connection: Connection, run: UUID) -> Archive | None:
    """Do the same, from memory if a small file was read within CACHED_SECONDS."""
    found = archived_runs.of(connection, run)
    if found is None or found.size > CACHED_BYTES:
        return None if found is None else _check_end(connection, _read(run, found))
    return _check_end(connection, _kept(run, found, int(time.monotonic() // CACHED_SECONDS)))


def parse(run: UUID | None, data: bytes) -> Archive:
    """Return the archived run in the bytes of a file; without `run` it may be any. Raises Tampered or KeyMissing."""
    return _archive(run, sealed_files.opened(data, name=None if run is None else _name(run)))


def put_back(connection: Connection, archive: Archive) -> None:
    """Write an archived run into Postgres, in the caller's transaction, which has locked its row.

    Raises NotArchived, or Tampered if the journal of the run did not end where the file does.
    """
    run = archive.run
    if archived_runs.of(connection, run) is None:
        raise NotArchived
    _check_end(connection, archive)
    for entry in archive.entries:
        journal.append_first(connection, entry)
    texts = [Blob(digest=digest, text=text) for digest, text in archive.contents.items()]
    blobs.store(connection, run, texts)
    pruning.delete(connection, run)
    if archive.mark != UNPRUNED:
        pruning.restore(connection, archive.mark, archive.start)
    runs.restore(connection, run, archive.row)
    archived_runs.restored(connection, run)


def _text(connection: Connection, run: UUID, row: dict[str, Any]) -> tuple[str, list[str]]:
    """Return the text of the file, from a journal that verifies, and the contents in it."""
    history = journal.history(connection, run)
    now, entries, seals, beginning = history.start, [], [], ""
    if history.mark.at is not None:
        beginning = export_file.beginning_text(ExportedBeginning(at=history.mark.at, state=now))
    for sealed, entry in history.entries:
        now = step(now, entry.events, head=sealed.seal.mac, at=entry.at)
        entries.append(sealed.body)
        seals.append([sealed.seal.mac, sealed.seal.key_id])
    if (now.position, now.head, now.ended) != (row["position"], row["head"], True):
        raise Tampered(f"the journal ends at entry {now.position}, the run at {row['position']}")
    digests = blobs.own(connection, run)
    contents = {digest: blobs.text(connection, digest) for digest in digests}
    record = {
        "row": row,
        "seals": seals,
        "tables": {table: _copy(connection, table, run) for table in _TABLES},
        "approvals": wiring.approvals().evidence(run),
        **({"removed": archived_entries.described(connection, run)} if beginning else {}),
    }
    said = json.dumps(record, separators=(",", ":"))
    file = ExportFile(
        key_id="",
        signature="",
        manifest=export_file.manifest_of(now, entries, contents, record=said, beginning=beginning),
        entries=tuple(entries),
        contents=contents,
        record=said,
        beginning=beginning,
    )
    return export_file.encode(file), digests


def _copy(connection: Connection, table: str, run: UUID) -> list[Any]:
    rows = connection.execute(
        f"SELECT to_jsonb(t)::text FROM {table} t WHERE run_id = %s ORDER BY t::text", (run,)
    )
    return [json.loads(row) for (row,) in rows.fetchall()]


def _check_end(connection: Connection, archive: Archive) -> Archive:
    """Return the file if it ends where the journal did. A file of an earlier archiving does not. Raises Tampered."""
    mark, last = pruning.read(connection, archive.run), archive.entries[-1]
    if (mark.position, mark.head) != (last.position, last.seal.mac):
        raise Tampered("the file does not end where the journal of its run did")
    return archive


def _read(run: UUID, found: ArchivedRunRow) -> Archive:
    text = sealed_files.read(found.place, name=_name(run), digest=found.digest)
    return _archive(run, text)


@lru_cache(8)
def _kept(run: UUID, found: ArchivedRunRow, period: int) -> Archive:
    """Keep the file for a period. A key is used for one file, so its content never changes."""
    return _read(run, found)


def _archive(run: UUID | None, text: str) -> Archive:
    try:
        file = export_file.decode(text)
        manifest, now = export_file.check_archived(file)
        mark, start = _beginning(manifest.run, file)
        record = json.loads(file.record)
        entries = tuple(_entries(manifest.run, mark, file.entries, record["seals"]))
    except (CoreError, ValueError, KeyError, TypeError) as exc:
        raise Tampered(f"the file of the run cannot be read: {exc}") from exc
    if run not in (None, manifest.run):
        raise Tampered("the file is that of another run")
    archive = Archive(
        run=manifest.run,
        mark=mark,
        start=start,
        now=now,
        row=record["row"],
        removed=record.get("removed", []),
        entries=entries,
        contents=file.contents,
    )
    for _ in journal.chained(manifest.run, mark, (entry.row for entry in entries)):
        pass
    return archive


def _beginning(run: UUID, file: ExportFile) -> tuple[PruneMark, Continuation]:
    found = export_file.beginning_of(file)
    if found is None:
        return UNPRUNED, initial(run)
    state = found.state
    return PruneMark(position=state.position, head=state.head, at=found.at), state


def _entries(
    run: UUID, mark: PruneMark, bodies: tuple[str, ...], seals: list[list[str]]
) -> Iterator[SignedEntry]:
    pairs = zip(bodies, seals, strict=True)
    for position, (body, (mac, key_id)) in enumerate(pairs, start=mark.position + 1):
        yield journal.sealed_entry(run, position, body, Seal(mac=mac, key_id=key_id))


def _name(run: UUID) -> str:
    return f"run {run}"

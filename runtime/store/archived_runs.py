"""The archive of ended runs: writes one as a file, reads it, and puts it back. Each has a row with the key of its file.

The file is that of an exported run (`runtime.core.documents.export_file`), sealed and compressed (`sealed_files`), with
a record of what else is stored: the MAC of each entry, the run's row, its gates, used approvals, late outcomes and lost
leases, and its requests, decisions and audit. The record of tables is a copy for auditors: those rows stay in Postgres.
If the journal was shortened, the file has its beginning, and the record names the files of the removed entries.

The sweeper reserves a row with a new key in a transaction of its own, then writes the file, then deletes the run's data
in the transaction that changes the row. So Postgres knows every file. A key that is no longer needed goes to the
dropped objects, whose objects the sweeper deletes.

Texts that the run remembers of other runs stay in Postgres too, because they are erased with those runs.
"""

import json
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

from runtime.core.documents import export_file
from runtime.core.documents.blobs import Blob
from runtime.core.documents.export_file import ExportedBeginning, ExportFile
from runtime.core.run.continuation import Continuation
from runtime.core.run.reducer import make_initial_state, step
from runtime.core.values.errors import CoreError
from runtime.errors import NotArchived, Tampered
from runtime.ports import wiring
from runtime.store import archived_entries, pool, runs, sealed_files
from runtime.store.pool import Connection
from runtime.store.tables import blobs, jobs, journal, objects, pruning
from runtime.store.tables.journal import RemainingEntries, SignedEntry
from runtime.store.tables.pruning import UNPRUNED, PruneMark

WRITING, ARCHIVED, RESTORED = "writing", "archived", "restored"

# Between the reservation of a key and the lock of the run no lock shows that a sweeper is at work.
_FRESH = "interval '10 minutes'"
# The page of a run reads its file several times.
CACHED_BYTES, CACHED_SECONDS = 256 * 1024, 10  # compressed

# The rows of a run that stay in Postgres, copied for auditors.
_TABLES = ("runtime_gate", "runtime_usedapproval", "runtime_lateoutcome", "runtime_lostlease")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedRunRow:
    """The file of an archived run: its key, the hash of its bytes and their number, and when it was written."""

    key: str
    digest: str
    size: int
    at: datetime


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
        """Return the entries, decoded, as `journal.read_history` does."""
        entries = ((entry, journal.decode_signed_entry(entry)) for entry in self.entries)
        return RemainingEntries(mark=self.mark, start=self.start, entries=entries)


def reserve(connection: Connection, run: UUID) -> str | None:
    """Reserve a new key for the file of a run. Returns None if another sweeper has the run, or it is archived."""
    key = f"runs/{run}-{secrets.token_hex(6)}"
    cursor = connection.execute(
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
        {"run": run, "place": key},
    )
    return key if cursor.rowcount == 1 else None


def record_file(
    connection: Connection, run: UUID, *, key: str, digest: str, size: int, contents: Sequence[str]
) -> bool:
    """Record the written file, with the hashes of its contents. Returns False if the key is no longer reserved."""
    cursor = connection.execute(
        f"""
        UPDATE runtime_archivedrun SET state = '{ARCHIVED}', digest = %s, size = %s, contents = %s,
            at = clock_timestamp()
        WHERE run_id = %s AND place = %s AND state = '{WRITING}'
        """,
        (digest, size, list(contents), run, key),
    )
    return cursor.rowcount == 1


def find_file(connection: Connection, run: UUID) -> ArchivedRunRow | None:
    """Return the file of a run, None if it is not archived."""
    row = connection.execute(
        f"""
        SELECT place, digest, size, at FROM runtime_archivedrun WHERE run_id = %s AND state = '{ARCHIVED}'
        """,
        (run,),
    ).fetchone()
    return None if row is None else pool.decode_row(ArchivedRunRow, row)


def list_runs_with_blob(connection: Connection, digest: str) -> list[UUID]:
    """List the archived runs whose files have this content."""
    rows = connection.execute(
        f"SELECT run_id FROM runtime_archivedrun WHERE contents @> ARRAY[%s] AND state = '{ARCHIVED}'",
        (digest,),
    )
    return [run for (run,) in rows.fetchall()]


def record_restored(connection: Connection, run: UUID) -> None:
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
    objects.drop(connection, "runtime_archivedrun", "run_id = %s", run)


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


def write(connection: Connection, run: UUID, key: str) -> bool:
    """Write the file of a run, then delete the run's data, in the caller's transaction.

    Returns False if the run may not be archived, or another transaction has it. Raises Tampered, KeyMissing,
    NewerSchema, TooLarge or ObjectStoreDown, with nothing deleted.
    """
    row = runs.lock_to_archive(connection, run)
    if row is None:
        return False
    runs.require_no_hold(run)
    text, contents = _build_file_text(connection, run, row)
    written = sealed_files.write(key, name=_make_file_name(run), text=text)
    pruning.write(connection, run, position=row["position"], head=row["head"])
    journal.delete_until(connection, run, until=row["position"])
    runs.delete_rows(connection, run, *runs.OF_LIVE_RUNS)
    blobs.release(connection, run, contents)
    jobs.delete_for_run(connection, run)
    runs.archive(connection, run)
    return record_file(
        connection, run, key=key, digest=written.digest, size=written.size, contents=contents
    )


def read(connection: Connection, run: UUID, *, reuses: bool = False) -> Archive | None:
    """Return an archived run, None if it is not archived. Raises Tampered, KeyMissing or ObjectStoreDown."""
    if (row := find_file(connection, run)) is None:
        return None
    period = int(time.monotonic() // CACHED_SECONDS)
    try:
        is_reused = reuses and row.size <= CACHED_BYTES
        archive = _read_cached(run, row, period) if is_reused else _read(run, row)
        return _check_end(connection, archive)
    except Tampered:
        if find_file(connection, run) == row:
            raise
        return None  # restored or erased while it was read


def read_for_page(connection: Connection, run: UUID) -> Archive | None:
    """Do the same, from memory if a small file was read within CACHED_SECONDS."""
    return read(connection, run, reuses=True)


def parse(run: UUID | None, data: bytes) -> Archive:
    """Return the archived run in the bytes of a file; without `run` it may be any. Raises Tampered or KeyMissing."""
    return _archive(
        run, sealed_files.open_file(data, name=None if run is None else _make_file_name(run))
    )


def put_back(connection: Connection, archive: Archive) -> None:
    """Write an archived run into Postgres, in the caller's transaction, which has locked its row.

    Raises NotArchived, or Tampered if the journal of the run did not end where the file does.
    """
    run = archive.run
    if find_file(connection, run) is None:
        raise NotArchived
    _check_end(connection, archive)
    for entry in archive.entries:
        journal.append_first(connection, entry)
    texts = [Blob(digest=digest, text=text) for digest, text in archive.contents.items()]
    blobs.store(connection, run, texts)
    runs.delete_rows(connection, run, "runtime_pruning")
    if archive.mark != UNPRUNED:
        pruning.restore(connection, archive.mark, archive.start)
    runs.restore(connection, run, archive.row)
    record_restored(connection, run)


def _build_file_text(
    connection: Connection, run: UUID, row: dict[str, Any]
) -> tuple[str, list[str]]:
    """Return the text of the file, from a journal that verifies, and the contents in it."""
    history = journal.read_history(connection, run)
    now, entries, seals, beginning = history.start, [], [], ""
    if history.mark.at is not None:
        beginning = export_file.encode_beginning(ExportedBeginning(at=history.mark.at, state=now))
    for sealed, entry in history.entries:
        now = step(now, entry.events, head=sealed.seal.mac, at=entry.at)
        entries.append(sealed.body)
        seals.append([sealed.seal.mac, sealed.seal.key_id])
    if (now.position, now.head, now.ended) != (row["position"], row["head"], True):
        raise Tampered(f"the journal ends at entry {now.position}, the run at {row['position']}")
    digests = blobs.list_own_digests(connection, run)
    contents = {digest: blobs.read_text(connection, digest) for digest in digests}
    tables = {}
    for table in _TABLES:
        rows = connection.execute(
            f"SELECT to_jsonb(t)::text FROM {table} t WHERE run_id = %s ORDER BY t::text", (run,)
        )
        tables[table] = [json.loads(text) for (text,) in rows]
    record = {
        "row": row,
        "seals": seals,
        "tables": tables,
        "approvals": wiring.resolve_approvals().collect_evidence(run),
        **({"removed": archived_entries.describe_files(connection, run)} if beginning else {}),
    }
    record_text = json.dumps(record, separators=(",", ":"))
    file = ExportFile(
        key_id="",
        signature="",
        manifest=export_file.build_manifest(
            now, entries, contents, record=record_text, beginning=beginning
        ),
        entries=tuple(entries),
        contents=contents,
        record=record_text,
        beginning=beginning,
    )
    return export_file.encode(file), digests


def _check_end(connection: Connection, archive: Archive) -> Archive:
    """Return the file if it ends where the journal did. A file of an earlier archiving does not. Raises Tampered."""
    mark, last = pruning.read(connection, archive.run), archive.entries[-1]
    if (mark.position, mark.head) != (last.position, last.seal.mac):
        raise Tampered("the file does not end where the journal of its run did")
    return archive


def _read(run: UUID, row: ArchivedRunRow) -> Archive:
    text = sealed_files.read(row.key, name=_make_file_name(run), digest=row.digest)
    return _archive(run, text)


@lru_cache(8)
def _read_cached(run: UUID, row: ArchivedRunRow, period: int) -> Archive:
    """Keep the file for a period. A key is used for one file, so its content never changes."""
    return _read(run, row)


def _archive(run: UUID | None, text: str) -> Archive:
    try:
        file = export_file.decode(text)
        manifest, now = export_file.check_archived(file)
        mark, start = UNPRUNED, make_initial_state(manifest.run)
        if (beginning := export_file.decode_beginning(file)) is not None:
            start = beginning.state
            mark = PruneMark(position=start.position, head=start.head, at=beginning.at)
        record = json.loads(file.record)
        sealed = zip(file.entries, record["seals"], strict=True)
        entries = tuple(
            journal.build_signed_entry(manifest.run, position, body, mac, key_id)
            for position, (body, (mac, key_id)) in enumerate(sealed, start=mark.position + 1)
        )
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
    for _ in journal.verify_chain(manifest.run, mark, (entry.row for entry in entries)):
        pass
    return archive


def _make_file_name(run: UUID) -> str:
    return f"run {run}"

"""Verifies the files of an archived run with public keys alone: without Postgres, the store and the journal's keys.

The signature covers every byte. The rest says whether the installation wrote a consistent file: the digests of the
manifest, a journal that leads where the run's row says, and as many MACs as entries. The MACs need the journal's keys.

The files of its removed entries are signed too, and the file of the run has their digests. If they have all entries
from the first one on, these must lead to the state where the journal of the run's file begins.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from uuid import UUID

from runtime.core.documents import codec, continuations, export_file, signed_gzip
from runtime.core.run.continuation import Continuation, Phase, derive_status
from runtime.core.run.events import GateDecided, Imported
from runtime.core.run.reducer import make_initial_state, step
from runtime.core.values.errors import CoreError
from runtime.errors import Tampered
from runtime.store import archived_entries, sealed_files

EntryRow = tuple[str, str]  # an entry's text and MAC


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedFile:
    """A file with removed entries, as the file of the run names it: its first and last entry, key and digest."""

    first: int
    last: int
    key: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedFile:
    """The run in a verified file. `signer` is the id of the key.

    The file has `entries`; `removed` ones before them had left the journal before, for the files `removed_to`.
    Its entries follow the state `start`, None for a whole journal.
    `decided` are the decisions in its journal, `elsewhere` counts those before it was imported. `approvals` has
    the rows that `Approvals.evidence` returned when the file was written.
    """

    run: UUID
    signer: str
    now: Continuation
    entries: int
    removed: int
    removed_to: tuple[RemovedFile, ...]
    start: Continuation | None
    contents: dict[str, str]
    decided: tuple[GateDecided, ...]
    elsewhere: int
    approvals: dict[str, Any]


def verify(data: bytes, keys: Iterable[bytes], run: UUID | None = None) -> VerifiedFile:
    """Verify the bytes of a file; without `run` it may be that of any run. Raises Tampered, which says why."""
    head, text = sealed_files.open_with(data, keys)
    try:
        file = export_file.decode(text)
        manifest, now = export_file.check_archived(file)
        record = json.loads(file.record)
        _check_row(record["row"], record["seals"], file, now)
        # The decisions of this installation, and the number of those before an import.
        decided: list[GateDecided] = []
        elsewhere = 0
        for body in file.entries:
            for event in codec.decode_entry(body).events:
                match event:
                    case GateDecided():
                        decided.append(event)
                    case Imported():
                        elsewhere, decided = len(decided), []
        removed_to = tuple(
            RemovedFile(first=int(first), last=int(last), key=str(key), digest=str(digest))
            for first, last, key, digest in record.get("removed", [])
        )
        beginning = export_file.decode_beginning(file)
        approvals = dict(record["approvals"])
    except (CoreError, ValueError, LookupError, TypeError) as exc:
        raise Tampered(f"the file {head.name!r} is signed, but {exc}") from exc
    for name in (head.name, f"run {run or manifest.run}"):
        if name != f"run {manifest.run}":
            raise Tampered(f"the file is that of run {manifest.run}, not of {name}")
    return VerifiedFile(
        run=manifest.run,
        signer=head.key_id,
        now=now,
        entries=len(file.entries),
        removed=manifest.removed,
        removed_to=removed_to,
        start=beginning.state if beginning else None,
        contents=file.contents,
        decided=tuple(decided),
        elsewhere=elsewhere,
        approvals=approvals,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedEntries:
    """How many removed entries were verified; `are_whole` if they lead from the run's start to its present journal."""

    entries: int
    files: tuple[RemovedFile, ...]
    are_whole: bool


def verify_removed(
    run_file: VerifiedFile, files: Iterable[bytes], keys: Sequence[bytes]
) -> VerifiedEntries:
    """Verify the bytes of files that the run's file names. Raises Tampered, which says why."""
    file_by_digest = {file.digest: file for file in run_file.removed_to}
    rows_by_file: dict[RemovedFile, list[EntryRow]] = {}
    for data in files:
        file = file_by_digest.get(signed_gzip.hash_body(data))
        if file is None:
            raise Tampered("the file of the run names no file of entries with these bytes")
        rows_by_file[file] = _read_rows(run_file.run, file, data, keys)
    in_order = sorted(rows_by_file, key=lambda file: file.first)
    for earlier, later in pairwise(in_order):
        if later.first <= earlier.last:
            raise Tampered(f"two files have the entry {later.first}")
    return VerifiedEntries(
        entries=sum(len(rows) for rows in rows_by_file.values()),
        files=tuple(in_order),
        are_whole=_has_all_removed_entries(
            run_file, [row for file in in_order for row in rows_by_file[file]]
        ),
    )


def _check_row(
    row: dict[str, Any], seals: list[list[str]], file: export_file.ExportFile, now: Continuation
) -> None:
    """Raise Tampered unless the run's row says what its journal leads to."""
    ended_badly = now.phase in (Phase.FAILED, Phase.CANCELLED)
    expected = {
        "agent": now.agent,
        "requester": now.requester,
        "position": now.position,
        "head": seals[-1][0],
        "status": derive_status(now, leased=False),
        "input": now.input,
        "output": now.outcome if now.phase is Phase.COMPLETED else None,
        "reason": now.outcome if ended_badly else None,
    }
    stored = {
        **row,
        "input": json.loads(row["input"]),
        "output": json.loads(row["output"] or "null"),
    }
    for name, value in expected.items():
        if stored[name] != value:
            raise Tampered(f"its row has another {name} than its journal")
    if len(seals) != len(file.entries):
        raise Tampered(f"it has {len(seals)} MACs for {len(file.entries)} entries")


def _read_rows(run: UUID, file: RemovedFile, data: bytes, keys: Sequence[bytes]) -> list[EntryRow]:
    head, text = sealed_files.open_with(data, keys)
    if head.name != archived_entries.make_head_name(run, file.first):
        raise Tampered(
            f"the file is {head.name!r}, not {archived_entries.make_head_name(run, file.first)!r}"
        )
    try:
        rows = [(str(body), str(mac)) for body, mac, _ in json.loads(text)["entries"]]
    except (ValueError, LookupError, TypeError, RecursionError) as exc:
        raise Tampered(f"the file {head.name!r} is signed, but cannot be read") from exc
    if len(rows) != file.last - file.first + 1:
        raise Tampered(f"the file {head.name!r} has {len(rows)} entries")
    return rows


def _has_all_removed_entries(run_file: VerifiedFile, rows: list[EntryRow]) -> bool:
    """Return whether these are all removed entries. Raises Tampered if they do not lead to the state after them."""
    if run_file.start is None or len(rows) != run_file.removed:
        return False
    now = make_initial_state(run_file.run)
    try:
        for body, mac in rows:
            entry = codec.decode_entry(body)
            now = step(now, entry.events, head=mac, at=entry.at)
    except (CoreError, RecursionError) as exc:
        raise Tampered(f"the removed entry {now.position + 1} cannot follow: {exc}") from exc
    if continuations.encode_continuation(now) != continuations.encode_continuation(run_file.start):
        raise Tampered("the removed entries lead to another state than the one that follows them")
    return True

"""Verifies the files of removed entries with public keys alone, against the verified file of the run that names them.

Each file is signed, and the file of the run has its digest. If they have all entries from the first one on, these must
lead to the state where the journal of the run's file begins. The MACs need the journal's keys.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from uuid import UUID

from runtime.control.archive.verified_file import RemovedFile, VerifiedFile
from runtime.core.documents import codec, continuations, signed_gzip
from runtime.core.run.reducer import initial, step
from runtime.core.values.errors import CoreError
from runtime.errors import Tampered
from runtime.store import archived_entries, sealed_files

Row = tuple[str, str]  # an entry's text and MAC


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedEntries:
    """How many removed entries were verified; `are_whole` if they lead from the run's start to its present journal."""

    entries: int
    files: tuple[RemovedFile, ...]
    are_whole: bool


def verify(of: VerifiedFile, files: Iterable[bytes], keys: Sequence[bytes]) -> VerifiedEntries:
    """Verify the bytes of files that the run's file names. Raises Tampered, which says why."""
    file_by_digest = {file.digest: file for file in of.removed_to}
    rows_by_file: dict[RemovedFile, list[Row]] = {}
    for data in files:
        file = file_by_digest.get(signed_gzip.digest_of(data))
        if file is None:
            raise Tampered("the file of the run names no file of entries with these bytes")
        rows_by_file[file] = _rows(of.run, file, data, keys)
    in_order = sorted(rows_by_file, key=lambda file: file.first)
    for earlier, later in pairwise(in_order):
        if later.first <= earlier.last:
            raise Tampered(f"two files have the entry {later.first}")
    return VerifiedEntries(
        entries=sum(len(rows) for rows in rows_by_file.values()),
        files=tuple(in_order),
        are_whole=_lead_to_the_rest(of, [row for file in in_order for row in rows_by_file[file]]),
    )


def _rows(run: UUID, file: RemovedFile, data: bytes, keys: Sequence[bytes]) -> list[Row]:
    head, text = sealed_files.open_with(data, keys)
    if head.name != archived_entries.name(run, file.first):
        raise Tampered(f"the file is {head.name!r}, not {archived_entries.name(run, file.first)!r}")
    try:
        rows = [(str(body), str(mac)) for body, mac, _ in json.loads(text)["entries"]]
    except (ValueError, LookupError, TypeError, RecursionError) as exc:
        raise Tampered(f"the file {head.name!r} is signed, but cannot be read") from exc
    if len(rows) != file.last - file.first + 1:
        raise Tampered(f"the file {head.name!r} has {len(rows)} entries")
    return rows


def _lead_to_the_rest(of: VerifiedFile, rows: list[Row]) -> bool:
    """Return whether these are all removed entries. Raises Tampered if they do not lead to the state after them."""
    if of.start is None or len(rows) != of.removed:
        return False
    now = initial(of.run)
    try:
        for body, mac in rows:
            entry = codec.decode_entry(body)
            now = step(now, entry.events, head=mac, at=entry.at)
    except (CoreError, RecursionError) as exc:
        raise Tampered(f"the removed entry {now.position + 1} cannot follow: {exc}") from exc
    if continuations.encode_continuation(now) != continuations.encode_continuation(of.start):
        raise Tampered("the removed entries lead to another state than the one that follows them")
    return True

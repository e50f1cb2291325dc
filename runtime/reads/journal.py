"""Reads the journal of a run for pages: all entries in order, None for unreadable ones.

Nothing is verified here: a page must show the stored data, above all of a quarantined run. Results that are stored
outside their entry are read for people who may read a run that refers to them.
"""

import json
import re
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import chain
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet

from runtime.core.documents.codec import build_readable_pattern, decode_entry
from runtime.core.documents.continuations import decode_continuation
from runtime.core.run.continuation import Continuation
from runtime.core.run.reducer import Entry, make_initial_state, step
from runtime.core.values.errors import CoreError
from runtime.errors import KeyMissing, Tampered
from runtime.models import ArchivedEntries, BlobReference, JournalEntry, Pruning, Run
from runtime.ports import wiring
from runtime.reads import time_limits
from runtime.reads.redaction import redact
from runtime.store import archived_entries, archived_runs, pool
from runtime.store.tables import blobs, objects
from runtime.store.tables.journal import unpack_row

COLUMNS = ("position", "body", "mac", "key_id", "packed")  # what `unpacked` needs


def build_unreadable_sql(run: str) -> str:
    """Return the SQL expression of the positions of entries that begin as none that this release reads.

    `run` is an expression too. Postgres looks at the first characters alone, because a decision must not take longer in
    a long run. An entry that was changed behind them does not verify, so the worker starts no call of its run.
    """
    return f"""ARRAY(SELECT position FROM runtime_journalentry WHERE run_id = {run}
        AND (packed IS NULL OR body <> '') AND left(body, 16) !~ '{build_readable_pattern()}' ORDER BY position)"""


_DIGEST = re.compile("sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalLine:
    """One row of the journal. `mac` authenticates its text of `size` characters; `entry` is None if unreadable."""

    position: int
    entry: Entry | None
    mac: str
    size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """Where the journal of a long run begins: entries up to `position` were removed at `at`.

    `state` is the run's state there, None if it cannot be read. `is_archived` says that the archive has the entries.
    """

    position: int
    at: datetime
    state: Continuation | None
    is_archived: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Remaining:
    """The lines that a run still has, and where they begin, None for a whole journal."""

    run: UUID
    lines: tuple[JournalLine, ...]
    beginning: Beginning | None = None

    @property
    def start(self) -> Continuation:
        """The state before the first line, the initial one if it cannot be read."""
        begun = self.beginning.state if self.beginning else None
        return begun or make_initial_state(self.run)

    @property
    def removed(self) -> int:
        """The number of removed entries."""
        return self.beginning.position if self.beginning else 0

    def find_line(self, position: int) -> JournalLine | None:
        """Return the line at a position; None if it does not exist or was removed."""
        index = position - (self.lines[0].position if self.lines else 1)
        return self.lines[index] if 0 <= index < len(self.lines) else None


def read_remaining(run: UUID, *, until: int | None = None) -> Remaining:
    """Return the lines that a run still has, up to `until` or all. The caller has checked access."""
    lines = read(run, until=until)
    if lines and lines[0].position == 1:
        return Remaining(run=run, lines=lines)
    beginning = _read_beginning(run)
    removed = beginning.position if beginning else 0
    remaining_lines = tuple(
        line for line in lines if line.position > removed
    )  # removed since they were read
    return Remaining(run=run, lines=remaining_lines, beginning=beginning)


def _read_beginning(run: UUID) -> Beginning | None:
    """Read where the journal of a run begins; None for a run without removed entries, or without payloads.

    Raises ObjectStoreDown.
    """
    rows = Pruning.objects.filter(run=run, state__isnull=False)
    for position, at, text in rows.values_list("position", "at", "state"):
        try:
            state = decode_continuation(text or "")
        except CoreError:
            state = None
        is_archived = ArchivedEntries.objects.filter(run=run, last=position).exists()
        return Beginning(position=position, at=at, state=state, is_archived=is_archived)
    try:
        archived = archived_runs.read_for_page(pool.use_django_connection(), run)
    except (Tampered, KeyMissing):
        return None
    if archived is None or archived.mark.at is None:
        return None
    return Beginning(
        position=archived.mark.position,
        at=archived.mark.at,
        state=archived.start,
        is_archived=bool(archived.removed),
    )


def read(run: UUID, *, after: int = 0, until: int | None = None) -> tuple[JournalLine, ...]:
    """Return the lines after position `after`, up to `until` or all. The caller has checked access.

    Those of an archived run come from its file; there are none if it does not verify. Raises ObjectStoreDown.
    """
    rows = JournalEntry.objects.filter(run_id=run, position__gt=after).order_by("position")
    if until is not None:
        rows = rows.filter(position__lte=until)
    if after:
        return tuple(_decode_line(*row) for row in read_stored_entries(rows))
    try:
        return tuple(_decode_line(*row) for row in read_stored_or_archived(run, rows, until=until))
    except (Tampered, KeyMissing):
        return ()  # `runs.with_archive` raises it, and the page shows it


def read_removed_entries(run: UUID, *, after: int) -> Iterator[tuple[int, str, str]]:
    """Yield position, stored text and MAC of the archived entries of a run that went on, after `after`.

    Raises Tampered, KeyMissing or ObjectStoreDown.
    """
    for position, body, mac, _ in archived_entries.read(
        pool.use_django_connection(), run, after=after
    ):
        yield position, body, mac


def read_archived_entries(
    run: UUID, *, after: int = 0, until: int | None = None
) -> Iterator[tuple[int, str, str]]:
    """Yield position, stored text and MAC of the entries of an archived run; none of any other run.

    Raises Tampered, KeyMissing or ObjectStoreDown.
    """
    archived_run = archived_runs.read_for_page(pool.use_django_connection(), run)
    for entry in archived_run.entries if archived_run else ():
        if entry.position > after and (until is None or entry.position <= until):
            yield entry.position, entry.body, entry.seal.mac


def read_stored_or_archived(
    run: UUID, rows: QuerySet[JournalEntry], *, after: int = 0, until: int | None = None
) -> Iterator[tuple[int, str, str]]:
    """Yield position, stored text and MAC of these rows of a run, or of the same entries of its file.

    It may be restored after Postgres had no row and before it has no file. Raises Tampered, KeyMissing or
    ObjectStoreDown.
    """
    from_file = partial(read_archived_entries, run, after=after, until=until)
    for read in (partial(read_stored_entries, rows), from_file, partial(read_stored_entries, rows)):
        entries = read()
        if (first := next(entries, None)) is not None:
            return chain((first,), entries)
    return iter(())


def read_stored_entries(rows: QuerySet[JournalEntry]) -> Iterator[tuple[int, str, str]]:
    """Return position, stored text and MAC of each row."""
    for row in rows.values_list(*COLUMNS):
        position, body, mac, _ = unpack_row(*row)
        yield position, body, mac


def fold_states(now: Continuation, lines: Iterable[JournalLine]) -> Iterator[Continuation]:
    """Yield the state after each line that follows `now`, up to the first line that cannot be folded."""
    for line in lines:
        try:
            if line.entry is None or line.position != now.position + 1:
                return
            now = step(now, line.entry.events, head=line.mac, at=line.entry.at)
        except CoreError:
            return
        yield now


def fold_last_state(now: Continuation, lines: Iterable[JournalLine]) -> Continuation:
    """Return the last of `fold_states`, or `now` if there is none. The others are not kept: each lists calls."""
    return deque(chain((now,), fold_states(now, lines)), maxlen=1).pop()


def _decode_line(position: int, body: str, mac: str) -> JournalLine:
    time_limits.check()
    return JournalLine(position=position, entry=try_decode_entry(body), mac=mac, size=len(body))


def try_decode_entry(body: str) -> Entry | None:
    """Decode an entry; return None if it cannot be read."""
    try:
        return decode_entry(body)
    except (CoreError, RecursionError):
        return None


def read_object_totals() -> objects.Totals | None:
    """Return the totals of large results, None without a store. They come from Postgres, so no page waits for it."""
    return (
        None
        if wiring.find_object_store() is None
        else objects.count_objects(pool.use_django_connection())
    )


def find_blob(condition: Q, digest: str) -> tuple[Any] | None:
    """Return the value with secrets redacted, in a tuple because the value may be None.

    Return None if no run that meets `condition` refers to it, or if the stored text does not match its hash. A content
    of an archived run comes from its file. Raise ObjectStoreDown.
    """
    if not _DIGEST.fullmatch(digest):  # such text cannot be stored
        return None
    users = BlobReference.objects.filter(blob_id=digest).values("run_id")
    readable = Run.objects.filter(condition, id__in=users)
    connection = pool.use_django_connection()
    for _ in range(2):  # a run may be archived or restored between two statements
        if readable.exists():
            with suppress(Tampered):
                return (redact(blobs.fetch(connection, digest)),)
        archived = archived_runs.list_runs_with_blob(connection, digest)
        run = Run.objects.filter(condition, id__in=archived).values_list("id", flat=True).first()
        with suppress(Tampered, KeyMissing):
            if run is not None and (file := archived_runs.read_for_page(connection, run)):
                return (redact(json.loads(file.contents[digest])),)
    return None

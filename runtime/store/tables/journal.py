"""Stores the journal of a run: entries are only appended, each with the MAC of the one before.

The MAC covers run, position, the previous MAC and the exact bytes of the body. So an entry that was edited, deleted,
inserted, swapped or restored from an older state does not verify. No code acts on such an entry.
"""

import os
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, islice
from typing import Any
from uuid import UUID

from runtime.core.documents import codec
from runtime.core.run.continuation import Continuation
from runtime.core.run.events import Event
from runtime.core.run.forks import is_quiescent, list_replies
from runtime.core.run.reducer import Entry, make_initial_state, step
from runtime.core.values.errors import CoreError, Unreadable
from runtime.errors import HistoryRemoved, NoSuchEntry, Tampered
from runtime.keyring import files, purposes, signatures
from runtime.keyring.signatures import Seal
from runtime.store.pool import Connection
from runtime.store.tables import pruning
from runtime.store.tables.pruning import UNPRUNED, PruneMark

# The source of commit ids. A tool that seeds `random` cannot make two processes draw the same ids. They are no
# secrets, so no step has to ask the system for them, which would release the interpreter lock.
_ids = random.Random()  # noqa: S311
os.register_at_fork(after_in_child=_ids.seed)

Row = Sequence[Any]

_MAC_BYTES = signatures.SHORT // 2

INSERT = """
    INSERT INTO runtime_journalentry (run_id, position, body, mac, key_id, commit_id, packed)
"""

# The part of the step statement that appends the entry; `run` is the updated row of the run.
APPEND = f"""{INSERT}
    SELECT id, %(position)s, %(body)s, %(mac)s, %(key_id)s, %(commit_id)s, %(packed)s::bytea FROM run
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedEntry:
    """A signed entry to write. `commit_id` tells our own entry from another worker's."""

    run: UUID
    position: int
    body: str
    seal: Seal
    commit_id: UUID

    @property
    def row(self) -> Row:
        """The row as a later claim reads it."""
        return self.position, self.body, self.seal.mac, self.seal.key_id

    def build_parameters(self) -> dict[str, object]:
        """Return the parameters of APPEND, and `head`, the MAC for the run's row."""
        compressed = codec.pack_text(self.body)
        common = {
            "position": self.position,
            "commit_id": self.commit_id,
            "head": self.seal.mac,
            "key_id": self.seal.key_id,
        }
        if compressed is None:
            return {**common, "body": self.body, "mac": self.seal.mac, "packed": None}
        packed = bytes.fromhex(self.seal.mac) + compressed
        return {**common, "body": "", "mac": "", "packed": packed}


def sign(run: UUID, position: int, previous: str, entry: Entry) -> SignedEntry:
    """Encode, compress and sign the entry that follows the one whose MAC is `previous` (empty for the first)."""
    return sign_text(run, position, previous, codec.encode_stored_text(codec.encode_entry(entry)))


def sign_text(run: UUID, position: int, previous: str, body: str) -> SignedEntry:
    """Sign an entry that is already a text, as `sign` does."""
    return SignedEntry(
        run=run,
        position=position,
        body=body,
        seal=signatures.seal(purposes.JOURNAL, str(run), str(position), previous, body, short=True),
        commit_id=UUID(int=_ids.getrandbits(128), version=4),
    )


def append_first(connection: Connection, sealed: SignedEntry) -> None:
    """Append an entry to a run that no worker has, also its first one, inside the caller's transaction."""
    connection.execute(
        f"{INSERT} VALUES"
        " (%(run)s, %(position)s, %(body)s, %(mac)s, %(key_id)s, %(commit_id)s, %(packed)s::bytea)",
        {"run": sealed.run, **sealed.build_parameters()},
    )


def build_signed_entry(
    run: UUID, position: int, body: str, mac: str, key_id: str, commit: UUID | None = None
) -> SignedEntry:
    """Return a stored entry. One of an archived run, to be written again, gets a new id of its commit."""
    commit_id = commit or UUID(int=_ids.getrandbits(128), version=4)
    seal = Seal(mac=mac, key_id=key_id)
    return SignedEntry(run=run, position=position, body=body, seal=seal, commit_id=commit_id)


def decode_signed_entry(sealed: SignedEntry) -> Entry:
    """Decode an entry whose MAC was verified. Raises Tampered or NewerSchema."""
    return _decode_entry(sealed.position, sealed.body)


class Entries:
    """The verified entries of a run. `rows` begin with position, body and MAC."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = tuple(rows)

    def text(self, position: int) -> str:
        """Return the text of an entry. Raises LookupError."""
        index = position - self.rows[0][0] if self.rows else -1
        if not 0 <= index < len(self.rows):
            raise LookupError(position)
        body: str = self.rows[index][1]
        return body


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkPoint:
    """A state from which a fork may start, and the events that follow in its entry."""

    state: Continuation
    later: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RemainingEntries:
    """The remaining entries of a run, verified and decoded as they are read, and the state before the first one.

    The entries up to `mark` were removed.
    """

    mark: PruneMark
    start: Continuation
    entries: Iterator[tuple[SignedEntry, Entry]]

    def replay_states(self) -> Iterator[Continuation]:
        """Yield the state after each remaining entry. Raises what `read_history` says."""
        now = self.start
        for sealed, entry in self.entries:
            now = fold_entry(now, sealed, entry)
            yield now

    def fork_points(self) -> Iterator[tuple[int, Iterator[ForkPoint]]]:
        """Yield each remaining entry's position, and where in it a fork may start. Raises what `read_history` says."""
        now = self.start
        for sealed, entry in self.entries:
            before, now = now, fold_entry(now, sealed, entry)
            yield sealed.position, fork_points(before, now, entry)


def fork_points(before: Continuation, after: Continuation, entry: Entry) -> Iterator[ForkPoint]:
    """Yield where a fork may start in the entry between two states: at its end, and before a reply that joined it."""
    if is_quiescent(after):
        yield ForkPoint(state=after)
    for at, _ in reversed(list_replies(entry.events)):
        state = step(before, entry.events[:at], head=after.head, at=entry.at)
        if at and is_quiescent(state):
            yield ForkPoint(state=state, later=entry.events[at:])


def read(connection: Connection, run: UUID) -> tuple[PruneMark, Entries]:
    """Return the prune mark and the remaining entries. Raises Tampered or KeyMissing."""
    mark, rows = _read_verified_rows(connection, run)
    return mark, Entries(rows)


def fold_entries(
    base: Continuation,
    mark: PruneMark,
    entries: Entries,
    *,
    position: int,
    head: str,
    kept_state: Continuation | None = None,
) -> Continuation:
    """Fold the entries after `base` up to exactly `position`, whose MAC must be `head`.

    Entries before `base` no longer change the state. They are verified too, because people read them and decide by
    them. `kept_state` is a state after the first entries, if the process has one. If it is later than `base`, only the
    entries after it are folded. Raises Tampered or NewerSchema.
    """
    now, last = base, mark.position
    if kept_state is not None and kept_state.position > base.position:
        now = kept_state
    begin = now.position
    if mark.position > base.position or (mark.position == base.position and mark.head != base.head):
        raise Tampered(
            f"the journal begins after entry {mark.position}, not where its run continues"
        )
    for last, body, mac, *_ in entries.rows:
        if last == base.position and mac != base.head:
            raise Tampered(f"journal entry {last} is not that of the continuation")
        if last > begin:
            now = _fold(now, last, mac, _decode_entry(last, body))
    if (last, now.position, now.head) != (position, position, head):
        raise Tampered(f"the journal ends at entry {last}, the run at {position}")
    return now


def read_history(
    connection: Connection, run: UUID, *, limit: int | None = None
) -> RemainingEntries:
    """Return the remaining entries of a run, at most so many, and the state before them.

    An ended run whose journal was deleted begins at its prune mark, without a state. Raises Tampered, KeyMissing, or
    NewerSchema, while the entries are read too: at the first one that does not verify or cannot be read.
    """
    mark, rows = _read_verified_rows(connection, run, limit)
    first = next(rows, None)
    start = make_initial_state(run) if first is None else pruning.restore_state(run, mark)
    remaining = () if first is None else chain((first,), rows)
    return RemainingEntries(
        mark=mark,
        start=start,
        entries=(
            (build_signed_entry(run, *row), _decode_entry(row[0], row[1])) for row in remaining
        ),
    )


def list_fork_points(connection: Connection, run: UUID, position: int) -> tuple[ForkPoint, ...]:
    """Return where a fork may start in this entry, verified from the first remaining entry on.

    Raises NoSuchEntry, HistoryRemoved, Tampered, KeyMissing, or NewerSchema.
    """
    remaining = read_history(connection, run)
    entries = remaining.fork_points()
    if position <= (removed := remaining.mark.position):
        first = next((number for number, points in entries if any(points)), None)
        then = "no entry" if first is None else f"entry {first} is the first one that"
        raise HistoryRemoved(
            removed + 1, remaining.mark.at, f"{then} can be forked", first=first, field="position"
        )
    for number, points in entries:
        if number == position:
            return tuple(points)
    raise NoSuchEntry


def fold_entry(now: Continuation, sealed: SignedEntry, entry: Entry) -> Continuation:
    """Return the state after one verified entry. Raises Tampered."""
    return _fold(now, sealed.position, sealed.seal.mac, entry)


def read_entry_time(body: str) -> datetime:
    """Return the time of an entry by its text, which is not verified; the earliest time if it cannot be read."""
    try:
        return codec.decode_entry(body).at
    except CoreError:
        return datetime.min.replace(tzinfo=UTC)


def was_written(connection: Connection, sealed: SignedEntry) -> bool:
    """Say whether exactly this entry was written. This tells an interrupted COMMIT from a lost lease."""
    row = connection.execute(
        "SELECT commit_id FROM runtime_journalentry WHERE run_id = %s AND position = %s",
        (sealed.run, sealed.position),
    ).fetchone()
    return row is not None and row[0] == sealed.commit_id


def verify(connection: Connection, run: UUID, *, position: int, head: str) -> None:
    """Raise Tampered or KeyMissing unless every remaining entry verifies and the last one is this."""
    mark, rows = _read_verified_rows(connection, run)
    last = (mark.position, mark.head)
    for at, _, mac, *_ in rows:
        last = (at, mac)
    if last != (position, head):
        raise Tampered(f"the journal ends at entry {last[0]}, the run at {position}")


def delete_until(connection: Connection, run: UUID, *, until: int) -> None:
    """Delete the entries up to `until`. The caller has verified them and writes the prune mark."""
    connection.execute(
        "DELETE FROM runtime_journalentry WHERE run_id = %s AND position <= %s", (run, until)
    )


def _fold(now: Continuation, position: int, mac: str, entry: Entry) -> Continuation:
    try:
        return step(now, entry.events, head=mac, at=entry.at)
    except CoreError as exc:
        raise Tampered(f"journal entry {position}: {exc}") from exc


def _decode_entry(position: int, body: str) -> Entry:
    try:
        return codec.decode_entry(body)
    except Unreadable as exc:
        raise Tampered(f"journal entry {position}: {exc}") from exc


def verify_chain(
    run: UUID, mark: PruneMark, rows: Iterable[Row], *, verified_rows: int = 0
) -> Iterator[Row]:
    """Yield the rows after the mark while each follows the one before.

    They begin with position, body, MAC and key. The first `verified_rows` ones are the same as rows verified before.
    Raises Tampered or KeyMissing.
    """
    verifies = signatures.make_verifier(purposes.JOURNAL, str(run))
    previous, unverified = mark.head, iter(rows)
    ids = set()
    for row in islice(unverified, verified_rows):
        previous = row[2]
        ids.add(row[3])
        yield row
    for key_id in ids:
        files.read_key(purposes.JOURNAL, key_id)  # which may have been removed since
    for count, row in enumerate(unverified, start=mark.position + verified_rows + 1):
        position, body, mac, key_id, *_ = row
        if position != count:
            raise Tampered(f"journal entry {count} is missing")
        if not verifies(mac, key_id, str(count), previous, body):
            raise Tampered(f"journal entry {count} does not verify")
        previous = mac
        yield row


def _read_verified_rows(
    connection: Connection, run: UUID, limit: int | None = None
) -> tuple[PruneMark, Iterator[Row]]:
    """Return the prune mark and the remaining entries, verified one by one as they are read.

    The sweeper may shorten the journal between the two statements. Then they are read again, so that a mark and
    entries of one moment are compared.
    """
    before: PruneMark | None = None
    while True:
        stored = connection.execute(
            """
            SELECT position, body, mac, key_id, packed, commit_id FROM runtime_journalentry
            WHERE run_id = %s ORDER BY position LIMIT %s
            """,
            (run, limit),
        )
        rows: Iterator[Row] = (unpack_row(*row) for row in stored)
        first = next(rows, None)
        mark = UNPRUNED if first is not None and first[0] == 1 else pruning.read(connection, run)
        if first is None:
            return mark, rows
        if mark.position < first[0] or mark == before:
            return mark, verify_chain(run, mark, chain((first,), rows))
        before = mark


def unpack_row(
    position: int, body: str, mac: str, key_id: str, packed: bytes | None, *columns: Any
) -> tuple[Any, ...]:
    """Return a row without `packed`: position, body, MAC and key of its entry, and the columns after it.

    The body and MAC columns of a packed entry are empty. If one is not, the row was changed: its value is used, and
    does not verify.
    """
    if packed is not None:
        body = body or codec.unpack_text(packed[_MAC_BYTES:])
        mac = mac or packed[:_MAC_BYTES].hex()
    return position, body, mac, key_id, *columns

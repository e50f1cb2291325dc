"""Claims a run and reads it in one statement: its row, its continuation, its journal and its signals.

The journal of a live run is whole, or begins after a prune mark below its continuation.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import starmap
from typing import Any
from uuid import UUID

from runtime.core.documents.continuations import Conversations
from runtime.core.run.continuation import Continuation
from runtime.ports.access import Expression
from runtime.store import leases, pool
from runtime.store.leases import RunClaim
from runtime.store.pool import Connection
from runtime.store.tables import continuations, journal, pruning, signals
from runtime.store.tables.journal import Entries
from runtime.store.tables.pruning import UNPRUNED

# Each column of many rows is an array, so that there is one row. Entries are sorted once, not for each array; in
# another order they would not verify.
_STORED = f"""
    c.position, c.body, c.mac, c.key_id, e.positions, e.bodies, e.macs, e.keys, e.packed, run.mailbox,
    ARRAY(SELECT jsonb_array_elements_text(run.origin)),
    s.ids, s.kinds, s.bodies, s.ats, s.dues, {pruning.COLUMNS}
"""
_BESIDE = """
    LEFT JOIN runtime_storedcontinuation c ON c.run_id = run.id
    LEFT JOIN runtime_pruning p ON p.run_id = run.id
    CROSS JOIN LATERAL (
        SELECT array_agg(position) AS positions, array_agg(body) AS bodies, array_agg(mac) AS macs,
            array_agg(key_id) AS keys, array_agg(packed) AS packed
        FROM (
            SELECT position, body, mac, key_id, packed FROM runtime_journalentry WHERE run_id = %(run)s
            ORDER BY position) ordered) e
    CROSS JOIN LATERAL (
        SELECT array_agg(id ORDER BY id) AS ids, array_agg(kind ORDER BY id) AS kinds,
            array_agg(body ORDER BY id) AS bodies, array_agg(effective_at ORDER BY id) AS ats,
            array_agg(effective_at <= clock_timestamp() ORDER BY id) AS dues
        FROM runtime_signal WHERE run_id = %(run)s) s
"""
NOTHING = Expression(sql="NULL", parameters={})
_LOAD = f"SELECT {_STORED} FROM runtime_run run {_BESIDE} WHERE run.id = %(run)s"


@dataclass(frozen=True, slots=True)
class StoredRun:
    """The stored data of a run, not verified yet. `read` is what its claim has also read, None without a claim."""

    run: UUID
    row: Sequence[Any]
    entries: tuple[journal.Row, ...]
    read: Any = None

    def read_pending_signals(self) -> signals.PendingSignals:
        """Return the signals. Raises Tampered for a signal that none of our processes wrote."""
        count, origin, *columns = self.row[9:16]
        return signals.build_pending_signals(count, _transpose_columns(columns), origin)

    def state(
        self,
        claim: RunClaim,
        conversations: Conversations,
        *,
        verified_rows: int = 0,
        kept_state: Continuation | None = None,
    ) -> tuple[Continuation, Entries]:
        """Return the verified state at the claim's position, and the entries of the run.

        `conversations` must be empty or have read the first entries; the remaining entries that the state needs are
        read into it. The first `verified_rows` entries are the same as rows that this process verified or wrote, and
        `kept_state` is the state after them. Raises Tampered, KeyMissing, or NewerSchema.
        """
        is_complete = self.row[16] is None
        mark = UNPRUNED if is_complete else pruning.verify_mark(self.run, self.row[16:21])
        entries = Entries(
            journal.verify_chain(self.run, mark, self.entries, verified_rows=verified_rows)
        )
        row = None if self.row[0] is None else self.row[0:4]
        base = continuations.restore_continuation(
            self.run, claim.continuation_position, row, entries.text, conversations
        )
        now = journal.fold_entries(
            base, mark, entries, position=claim.position, head=claim.head, kept_state=kept_state
        )
        return now, entries


def claim(
    connection: Connection,
    run: UUID,
    *,
    owner: UUID,
    worker: UUID | None = None,
    isolated: bool = False,
    also_read: Expression = NOTHING,
) -> tuple[RunClaim, StoredRun] | None:
    """Claim the run under this owner's token, and load it. None if it is not due, or another process has it.

    With `isolated` only isolated runs can be claimed, else only the others. `also_read` is read besides; `run` is the
    row.
    """
    row = pool.fetch_row(
        connection,
        _claim(also_read.sql),
        {
            "run": run,
            "owner": owner,
            "worker": worker,
            "isolated": isolated,
            **also_read.parameters,
        },
        binary=True,
    )
    if row is None:
        return None
    epoch, position, head, base, previous, at, stopped, losses, is_current, *stored, read, _ = row
    run_claim = RunClaim(
        run=run,
        epoch=epoch,
        owner=owner,
        worker=worker,
        position=position,
        head=head,
        continuation_position=base,
        previous=previous,
        at=at,
        kill_switches=frozenset(stopped),
        lost_leases=losses,
        isolated=isolated,
    )
    return run_claim, _build_stored_run(run, stored, read) if is_current else load(connection, run)


@cache
def _claim(also_read: str) -> str:
    # The row is read under its lock. The other data has the statement's snapshot; `seen` is the row in that snapshot.
    return f"""
        WITH run AS ({leases.CLAIM})
        SELECT run.epoch, run.position, run.head, run.base, run.previous, run.at, run.stops, run.losses,
            (seen.epoch, seen.position, seen.mailbox) = (run.epoch - 1, run.position, run.mailbox),
            {_STORED}, {also_read}, {leases.ASYNC_COMMIT}
        FROM run JOIN runtime_run seen ON seen.id = run.id {_BESIDE}
    """


def load(connection: Connection, run: UUID) -> StoredRun:
    """Read the stored data of a claimed run."""
    row = pool.fetch_row(connection, _LOAD, {"run": run}, binary=True)
    if row is None:
        raise LookupError(f"there is no run {run}")
    return _build_stored_run(run, row)


def _build_stored_run(run: UUID, row: Sequence[Any], read: Any = None) -> StoredRun:
    return StoredRun(
        run, row, tuple(starmap(journal.unpack_row, _transpose_columns(row[4:9]))), read
    )


def _transpose_columns(columns: Sequence[Sequence[Any] | None]) -> Iterator[tuple[Any, ...]]:
    return zip(*[column or () for column in columns], strict=True)

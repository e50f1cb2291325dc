"""Reads and writes the run's row, except for the worker that has the run, which writes it under its claim (`leases`).

These functions run in the caller's transaction. `notify_signal`, `lock` and `lock_row` lock the row until it ends, so
a signal is written before a step or after it. A run is started by two statements: one reads the data that the start
depends on, one writes row and first entry.
"""

import json
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from typing import Any
from uuid import UUID

from runtime.core.run.continuation import merge_people
from runtime.errors import NoSuchRun, RunEnded, Tampered
from runtime.ports import wiring
from runtime.ports.access import Expression
from runtime.store import pool
from runtime.store.leases import ALONE, DUE_SHORTLY
from runtime.store.pool import Connection
from runtime.store.tables import journal
from runtime.store.tables.journal import SignedEntry

# The part of the statement that settles a gate: `notify_signal` for its run, unless it has ended. It does not wait for
# a lock, because the data that the statement depends on could change meanwhile. The gate is read first: while Postgres
# has no statistics, it would join all runs. `num_nulls` keeps it from using the index of idle runs, which it would have
# to read completely.
NOTIFY_SIGNAL = f"""
    UPDATE runtime_run SET mailbox = mailbox + 1,
        due_at = CASE WHEN status <> 'quarantined'
            THEN least(due_at, coalesce(%(effective_at)s::timestamptz, {DUE_SHORTLY})) END
    WHERE id = (
        SELECT id FROM runtime_run WHERE id = (SELECT run_id FROM runtime_gate WHERE id = %(gate)s)
            AND num_nulls(ended_at) = 1 FOR NO KEY UPDATE SKIP LOCKED)
    RETURNING id
"""

INSERT = f"""
    INSERT INTO runtime_run
        (id, agent, requester, token, business_key, thread, input, status, position, head, unheard,
        origin, due_at)
    VALUES (%(id)s, %(agent)s, %(requester)s, %(token)s, %(business_key)s, %(thread)s, %(input)s,
        %(status)s, %(position)s, %(head)s, %(unheard)s, %(origin)s::jsonb, {DUE_SHORTLY})
"""
# The same for a run with a business key, which may be taken. INSERT alone is faster.
INSERT_KEYED = f"{INSERT} ON CONFLICT ON CONSTRAINT run_business_key DO NOTHING"

# The tables of which an archived or erased run needs no row.
OF_LIVE_RUNS = ("runtime_compactionbase", "runtime_signal", "runtime_storedpartialreply")

_WITHOUT_PAYLOADS = "input = 'null', output = NULL, reason = NULL, awaits = NULL"
_START, _START_KEYED = (
    f"WITH run AS ({statement} RETURNING id), first AS ({journal.APPEND}) SELECT id FROM run"
    for statement in (INSERT, INSERT_KEYED)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedRow:
    """A locked run row. `owner` is None if no worker has the run, `continuation_position` is 0 without one.

    `isolated` says that a worker runs it alone in a process, `erased` that retention erased its payloads, `archived`
    that they are in the archive.
    """

    status: str
    position: int
    head: str
    continuation_position: int
    owner: UUID | None
    ended: bool
    isolated: bool
    erased: bool
    archived: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRun:
    """The id of a new run and the time of its start, by the database's clock."""

    run: UUID
    at: datetime


def insert(connection: Connection, row: dict[str, Any]) -> bool:
    """Write a run that is due; the caller sends its hint. Returns False if its business key is taken.

    `row` may omit `status`, `position`, `thread` and `undelivered` of a new run, and an `origin` of the requester
    alone.
    """
    statement = INSERT if row["business_key"] is None else INSERT_KEYED
    return connection.execute(statement, build_insert_parameters(row)).rowcount == 1


def build_insert_parameters(row: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of INSERT for a row of `insert`."""
    return {
        "status": "queued",
        "position": 1,
        "unheard": 0,
        "thread": None,
        **row,
        "origin": json.dumps(row.get("origin", [row["requester"]])),
    }


def lock_to_shorten(connection: Connection, run: UUID, *, base: int) -> bool:
    """Lock a live run whose continuation is after entry `base`.

    False if it is not, or the run has ended, is quarantined or under a legal hold.
    """
    cursor = connection.execute(
        """
        SELECT FROM runtime_run WHERE id = %s AND base > %s AND ended_at IS NULL
            AND status <> 'quarantined' AND legal_hold IS NULL FOR UPDATE
        """,
        (run, base),
    )
    return cursor.rowcount == 1


def has_run(connection: Connection, run: UUID) -> bool:
    """Return whether there is a run with this id."""
    return connection.execute("SELECT 1 FROM runtime_run WHERE id = %s", (run,)).rowcount == 1


def lock_row(connection: Connection, run: UUID) -> LockedRow:
    """Lock the run's row until the caller's transaction ends, and return it. Raises NoSuchRun."""
    row = connection.execute(
        """
        SELECT status, position, head, base, owner, ended_at IS NOT NULL, isolated,
            removed_at IS NOT NULL, archived_at IS NOT NULL
        FROM runtime_run WHERE id = %s FOR UPDATE
        """,
        (run,),
    ).fetchone()
    if row is None:
        raise NoSuchRun
    return pool.decode_row(LockedRow, row)


def lock(connection: Connection, run: UUID) -> str:
    """Lock the row of a run that accepts signals, and return its status.

    Raises RunEnded if the run has ended, is being cancelled, or is quarantined.
    """
    row = connection.execute(
        """
        SELECT status, ended_at IS NOT NULL OR status IN ('quarantined', 'cancelling')
        FROM runtime_run WHERE id = %s FOR NO KEY UPDATE
        """,
        (run,),
    ).fetchone()
    if row is None:
        raise LookupError(f"there is no run {run}")
    status, over = row
    if over:
        raise RunEnded(status)
    return str(status)


def count_undelivered(connection: Connection, run: UUID) -> int:
    """Return how many received messages no model has seen. The caller has locked the row."""
    row = connection.execute("SELECT unheard FROM runtime_run WHERE id = %s", (run,)).fetchone()
    assert row is not None  # the caller has locked it
    count: int = row[0]
    return count


def read_origin(connection: Connection, run: UUID) -> tuple[str, ...]:
    """Read the run's origin, with senders whose messages no worker has received."""
    row = connection.execute(
        """
        SELECT requester, ARRAY(SELECT jsonb_array_elements_text(origin))
        FROM runtime_run WHERE id = %s
        """,
        (run,),
    ).fetchone()
    if row is None:
        raise NoSuchRun
    return merge_people([row[0]], row[1])


def join(connection: Connection, run: UUID, person: str) -> bool:
    """Add a person to the run's origin; return False if they are in it. The caller has locked the row."""
    cursor = connection.execute(
        """
        UPDATE runtime_run SET origin = origin || to_jsonb(%(person)s::text)
        WHERE id = %(run)s AND NOT origin @> to_jsonb(%(person)s::text)
        """,
        {"run": run, "person": person},
    )
    return cursor.rowcount == 1


def notify_signal(connection: Connection, run: UUID) -> None:
    """Increase the signal count and make the run due shortly, when the caller's hint arrives.

    A transaction that sends a signal calls this first, because it locks the row. Raises RunEnded.
    """
    row = connection.execute(
        f"""
        UPDATE runtime_run SET mailbox = mailbox + 1,
            due_at = CASE WHEN ended_at IS NULL AND status <> 'quarantined'
                THEN least(due_at, {DUE_SHORTLY}) END
        WHERE id = %s RETURNING ended_at IS NOT NULL, status
        """,
        (run,),
    ).fetchone()
    if row is None:
        raise LookupError(f"there is no run {run}")
    ended, status = row
    if ended:
        raise RunEnded(status)


def end_run(connection: Connection, run: UUID, *, status: str, head: str) -> None:
    """End a run with one more entry. The caller has locked its row. A worker that still has the run writes nothing."""
    connection.execute(
        """
        UPDATE runtime_run SET status = %s, head = %s, position = position + 1, epoch = epoch + 1,
            mailbox = mailbox + 1, ended_at = clock_timestamp(), due_at = NULL
        WHERE id = %s
        """,
        (status, head, run),
    )


def reopen(connection: Connection, run: UUID, *, status: str, head: str, base: int) -> None:
    """Make a failed run due, after its new entry. The caller has locked its row, and wrote the continuation `base`."""
    connection.execute(
        f"""
        UPDATE runtime_run SET status = %s, head = %s, position = position + 1, base = %s,
            epoch = epoch + 1, mailbox = mailbox + 1, ended_at = NULL, reason = NULL, losses = 0,
            due_at = {DUE_SHORTLY}
        WHERE id = %s
        """,
        (status, head, base, run),
    )


def set_base(connection: Connection, run: UUID, base: int) -> None:
    """Let a run that the caller's transaction wrote continue from the continuation `base`."""
    connection.execute("UPDATE runtime_run SET base = %s WHERE id = %s", (base, run))


def release(connection: Connection, run: UUID, *, status: str) -> None:
    """Make a quarantined run due and reset its lost leases. A run that was isolated is tried alone."""
    connection.execute(
        """
        UPDATE runtime_run SET status = %s, reason = NULL, due_at = clock_timestamp(),
            losses = CASE WHEN isolated THEN %s ELSE 0 END
        WHERE id = %s AND status = 'quarantined'
        """,
        (status, ALONE, run),
    )


def erase_payloads(
    connection: Connection, run: UUID, *, waits: bool = True
) -> tuple[int, str] | None:
    """Erase the payloads in the row of an ended run, lock the row, and return position and MAC of its last entry.

    Returns None if the run has none, has not ended or is under a legal hold, and without `waits`, if another
    transaction locks it.
    """
    return connection.execute(
        f"""
        UPDATE runtime_run SET removed_at = clock_timestamp(), archived_at = NULL, {_WITHOUT_PAYLOADS}
        WHERE id = (SELECT id FROM runtime_run
            WHERE id = %s AND ended_at IS NOT NULL AND removed_at IS NULL AND legal_hold IS NULL
            FOR UPDATE {"" if waits else "SKIP LOCKED"})
        RETURNING position, head
        """,
        (run,),
    ).fetchone()


def delete_rows(connection: Connection, run: UUID, *tables: str) -> None:
    """Delete the rows that a run has in these tables."""
    for table in tables:
        connection.execute(f"DELETE FROM {table} WHERE run_id = %s", (run,))


def lock_to_archive(connection: Connection, run: UUID) -> dict[str, Any] | None:
    """Lock the row of an ended run that may be archived, and return what the archive keeps of it.

    Returns None if it may not, or if another transaction locks it.
    """
    row = connection.execute(
        """
        SELECT jsonb_build_object('agent', agent, 'requester', requester, 'origin', origin, 'token', token,
            'business_key', business_key, 'thread', thread, 'input', input, 'output', output,
            'reason', reason, 'status', status, 'created_at', created_at, 'ended_at', ended_at,
            'position', position, 'head', head)::text
        FROM runtime_run WHERE id = %s AND ended_at IS NOT NULL AND removed_at IS NULL
            AND archived_at IS NULL AND legal_hold IS NULL
        FOR UPDATE SKIP LOCKED
        """,
        (run,),
    ).fetchone()
    return None if row is None else dict(json.loads(row[0]))


def archive(connection: Connection, run: UUID) -> None:
    """Delete the payloads in the row of a run that the archive has. The caller has locked it."""
    connection.execute(
        f"UPDATE runtime_run SET archived_at = clock_timestamp(), {_WITHOUT_PAYLOADS} WHERE id = %s",
        (run,),
    )


def restore(connection: Connection, run: UUID, row: dict[str, Any]) -> None:
    """Write the payloads of a row that the archive had. The caller has locked it."""
    connection.execute(
        """
        UPDATE runtime_run SET archived_at = NULL, input = %(input)s, output = %(output)s, reason = %(reason)s
        WHERE id = %(id)s
        """,
        {"id": run, "input": row["input"], "output": row["output"], "reason": row["reason"]},
    )


def hold(connection: Connection, run: UUID, *, by: str, reason: str) -> None:
    """Put a run under a legal hold. The caller has locked its row."""
    connection.execute(
        """
        UPDATE runtime_run SET legal_hold = jsonb_build_object(
            'by', %s::text, 'at', to_json(clock_timestamp()), 'reason', %s::text)
        WHERE id = %s
        """,
        (by, reason, run),
    )


def require_no_hold(run: UUID) -> None:
    """Raise Tampered if a run has a hold by the audit, which is not as easily changed, but none by its row."""
    without = "SELECT 1 FROM runtime_run WHERE id = %s AND legal_hold IS NULL"
    # The row is read after the audit, because the hold may be newer than what the caller read, and the audit again
    # after that, because the hold may have been lifted in between.
    is_held = partial(wiring.resolve_approvals().is_held, run)
    with pool.join_transaction() as connection:
        if is_held() and connection.execute(without, (run,)).rowcount == 1 and is_held():
            raise Tampered("by the audit it is under a legal hold, by its row it is not")


def lift_hold(connection: Connection, run: UUID) -> bool:
    """Lift the legal hold of a run; return False if there is none. The caller has locked its row."""
    cursor = connection.execute(
        "UPDATE runtime_run SET legal_hold = NULL WHERE id = %s AND legal_hold IS NOT NULL", (run,)
    )
    return cursor.rowcount == 1


def peek_start(connection: Connection, *expressions: Expression) -> tuple[NewRun, tuple[Any, ...]]:
    """Return the id and start time of a new run, and the values of these expressions."""
    parameters: dict[str, object] = {}
    for expression in expressions:
        parameters |= expression.parameters
    row = pool.fetch_row(
        connection, _peek_statement(tuple([one.sql for one in expressions])), parameters
    )
    assert row is not None  # a SELECT without FROM has one row
    return NewRun(run=row[0], at=row[1]), row[2:]


def write_start(connection: Connection, row: dict[str, Any], first: SignedEntry) -> bool:
    """Write a due run; the caller sends its hint. Return False if its business key is taken."""
    statement = _START if row["business_key"] is None else _START_KEYED
    written = pool.fetch_row(
        connection, statement, {**build_insert_parameters(row), **first.build_parameters()}
    )
    return written is not None


@cache
def _peek_statement(expressions: tuple[str, ...]) -> str:
    return (
        f"SELECT {', '.join(('signoff_uuid7(clock_timestamp()), clock_timestamp()', *expressions))}"
    )

"""Reads and writes the run's row for everyone but the worker that has the run.

That worker writes the row under its claim (`leases`). These functions are part of the caller's transaction; `ring`,
`lock` and `standing` hold the row until it ends, so a signal comes before a step or after it.
"""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from runtime.core.machine.origin import merged
from runtime.errors import NoSuchRun, RunEnded
from runtime.store.leases import DUE_SHORTLY
from runtime.store.pool import Connection

# The part of the statement that settles a gate: `ring` for its run, unless that is over. It waits for no lock, under
# which what the statement rests on could change.
RING = f"""
    UPDATE runtime_run SET mailbox = mailbox + 1,
        due_at = CASE WHEN status <> 'quarantined'
            THEN least(due_at, coalesce(%(effective_at)s::timestamptz, {DUE_SHORTLY})) END
    WHERE id = (
        SELECT held.id FROM runtime_run held JOIN runtime_gate ON runtime_gate.run_id = held.id
        WHERE runtime_gate.id = %(gate)s AND held.ended_at IS NULL FOR NO KEY UPDATE OF held SKIP LOCKED)
    RETURNING id
"""

INSERT = f"""
    INSERT INTO runtime_run
        (id, agent, requester, token, business_key, input, status, position, head, unheard, origin,
        due_at)
    VALUES (%(id)s, %(agent)s, %(requester)s, %(token)s, %(business_key)s, %(input)s,
        %(status)s, %(position)s, %(head)s, %(unheard)s, %(origin)s::jsonb, {DUE_SHORTLY})
"""
# The same of a run with a business key, which may be taken. Without one Postgres writes the row at once.
INSERT_KEYED = f"{INSERT} ON CONFLICT ON CONSTRAINT run_business_key DO NOTHING"


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """Where the journal of a run ends: the last entry's position and MAC."""

    position: int
    head: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a run stands; `owner` is None when no worker has it, `base` is the position of its continuation.

    `isolated` says that it is tried alone in its process, `removed` that retention took its payloads.
    """

    status: str
    position: int
    head: str
    base: int
    owner: UUID | None
    ended: bool
    isolated: bool
    removed: bool


def insert(connection: Connection, row: dict[str, Any]) -> bool:
    """Write a run that is due, with a hint of the caller's. False if its business key is taken.

    `row` may leave out `status`, `position` and `unheard`, for a new run, and `origin` if the requester alone is in it.
    """
    statement = INSERT if row["business_key"] is None else INSERT_KEYED
    return connection.execute(statement, inserted(row)).rowcount == 1


def inserted(row: dict[str, Any]) -> dict[str, Any]:
    """The parameters of INSERT, of a row as `insert` takes it."""
    return {
        "status": "queued",
        "position": 1,
        "unheard": 0,
        **row,
        "origin": json.dumps(row.get("origin", [row["requester"]])),
    }


def keep(connection: Connection, run: UUID) -> None:
    """Have retention wait with the run, and with the contents it alone refers to, until the transaction ends."""
    connection.execute("SELECT FROM runtime_run WHERE id = %s FOR SHARE", (run,))


def exists(connection: Connection, run: UUID) -> bool:
    return connection.execute("SELECT 1 FROM runtime_run WHERE id = %s", (run,)).rowcount == 1


def standing(connection: Connection, run: UUID) -> Standing:
    """The run as it stands, and stays until the caller's transaction ends. Raises NoSuchRun."""
    row = connection.execute(
        """
        SELECT status, position, head, base, owner, ended_at IS NOT NULL, isolated,
            removed_at IS NOT NULL
        FROM runtime_run WHERE id = %s FOR UPDATE
        """,
        (run,),
    ).fetchone()
    if row is None:
        raise NoSuchRun
    status, position, head, base, owner, ended, isolated, removed = row
    return Standing(
        status=status,
        position=position,
        head=head,
        base=base,
        owner=owner,
        ended=ended,
        isolated=isolated,
        removed=removed,
    )


def lock(connection: Connection, run: UUID) -> str:
    """The status of a run that takes signals, with its row locked.

    Raises RunEnded for one that is over, is being cancelled, or cannot be verified.
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


def unheard(connection: Connection, run: UUID) -> int:
    """How many messages the run has taken up that no model has heard. The caller holds its row."""
    row = connection.execute("SELECT unheard FROM runtime_run WHERE id = %s", (run,)).fetchone()
    assert row is not None  # the caller holds it
    found: int = row[0]
    return found


def origin(connection: Connection, run: UUID) -> tuple[str, ...]:
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
    return merged([row[0]], row[1])


def join(connection: Connection, run: UUID, person: str) -> bool:
    """Add a person to the run's origin; return False if they are in it. The caller holds its row."""
    done = connection.execute(
        """
        UPDATE runtime_run SET origin = origin || to_jsonb(%(person)s::text)
        WHERE id = %(run)s AND NOT origin @> to_jsonb(%(person)s::text)
        """,
        {"run": run, "person": person},
    )
    return done.rowcount == 1


def ring(connection: Connection, run: UUID, at: datetime | None = None) -> None:
    """Raise the mailbox and make the run due, at `at` or with a hint of the caller's.

    The first act of a transaction that signals, as it locks the row. Raises RunEnded if the run takes no more.
    """
    row = connection.execute(
        f"""
        UPDATE runtime_run SET mailbox = mailbox + 1,
            due_at = CASE WHEN ended_at IS NULL AND status <> 'quarantined'
                THEN least(due_at, coalesce(%s, {DUE_SHORTLY})) END
        WHERE id = %s RETURNING ended_at IS NOT NULL, status
        """,
        (at, run),
    ).fetchone()
    if row is None:
        raise LookupError(f"there is no run {run}")
    ended, status = row
    if ended:
        raise RunEnded(status)


def end(connection: Connection, run: UUID, *, status: str, head: str) -> None:
    """End a run whose row the caller has locked, with one more entry; a worker that still has it writes nothing."""
    connection.execute(
        """
        UPDATE runtime_run SET status = %s, head = %s, position = position + 1, epoch = epoch + 1,
            mailbox = mailbox + 1, ended_at = clock_timestamp(), due_at = NULL
        WHERE id = %s
        """,
        (status, head, run),
    )


def reopen(connection: Connection, run: UUID, *, status: str, head: str) -> None:
    """Make a failed run due, after its new entry. The caller has locked its row."""
    connection.execute(
        f"""
        UPDATE runtime_run SET status = %s, head = %s, position = position + 1, base = 0,
            epoch = epoch + 1, mailbox = mailbox + 1, ended_at = NULL, reason = NULL, losses = 0,
            due_at = {DUE_SHORTLY}
        WHERE id = %s
        """,
        (status, head, run),
    )


def readmit(connection: Connection, run: UUID, *, status: str) -> None:
    """Make a quarantined run due, with its losses counted from nothing; suspects are tried alone as before."""
    connection.execute(
        """
        UPDATE runtime_run SET status = %s, reason = NULL, losses = 0, due_at = clock_timestamp()
        WHERE id = %s AND status = 'quarantined'
        """,
        (status, run),
    )


def strip(connection: Connection, run: UUID, *, waits: bool = True) -> End | None:
    """Take its payloads off the row of a run that is over, and lock it.

    None if it has none or goes on, and unless it `waits`, if another transaction has locked it.
    """
    row = connection.execute(
        f"""
        UPDATE runtime_run SET removed_at = clock_timestamp(), input = 'null', output = NULL,
            reason = NULL, awaits = NULL
        WHERE id = (SELECT id FROM runtime_run
            WHERE id = %s AND ended_at IS NOT NULL AND removed_at IS NULL
            FOR UPDATE {"" if waits else "SKIP LOCKED"})
        RETURNING position, head
        """,
        (run,),
    ).fetchone()
    return None if row is None else End(position=row[0], head=row[1])

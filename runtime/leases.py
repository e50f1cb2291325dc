"""The runs' keeper: who may advance a run, for how long, and every write to the run's row.

A claim is one conditional UPDATE that raises the epoch and sets a random owner until `lease_until`.
The owner's writes name epoch, owner and position, so those of a worker that was replaced find no row.
They do not name `lease_until`: a worker whom nobody replaced may record the result it holds.
Only the database's clock counts, and `clock_timestamp()`, since `now()` stands still in a transaction.
After a start of Postgres nobody is robbed of a lease for one lease: its owner could not renew it.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from django.conf import settings

from runtime.database import Connection
from runtime.errors import RunEnded

RESEND_SECONDS = 5.0
BACK_OFF_SECONDS = 30.0
SWEEP_LIMIT = 200

_LEASE_END = "clock_timestamp() + %(lease)s * interval '1 second'"

# The part of the step statement that moves the run; no row means that the step may not be written.
ADVANCE = """
    UPDATE runtime_run SET
        position = %(position)s, head = %(mac)s, status = %(status)s,
        base = CASE WHEN %(suspends)s THEN %(position)s ELSE base END,
        output = %(output)s, reason = %(reason)s,
        ended_at = CASE WHEN %(ended)s THEN clock_timestamp() END,
        owner = CASE WHEN %(release)s THEN NULL ELSE owner END,
        lease_until = CASE WHEN %(release)s THEN NULL ELSE lease_until END,
        due_at = CASE WHEN %(release)s THEN %(due)s::timestamptz ELSE due_at END
    WHERE id = %(run)s AND epoch = %(epoch)s AND owner = %(owner)s
        AND position = %(position)s - 1
        AND (NOT %(strict)s OR mailbox = %(mailbox)s)
    RETURNING id
"""

# The part of the heartbeat statement that renews every lease of a process.
RENEW = f"""
    UPDATE runtime_run SET lease_until = {_LEASE_END}, due_at = {_LEASE_END}
    FROM unnest(%(runs)s::uuid[], %(owners)s::uuid[]) AS held(run, owner)
    WHERE runtime_run.id = held.run AND runtime_run.owner = held.owner
    RETURNING runtime_run.id, mailbox
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The right to advance a run. `base` is the position of its continuation, 0 without one.

    `previous` is the status it had; `at` is database time.
    """

    run: UUID
    epoch: int
    owner: UUID
    position: int
    head: str
    base: int
    previous: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The run's row as it is now, to find out why a write met no row."""

    epoch: int
    owner: UUID | None
    position: int
    mailbox: int


def lease_seconds() -> float:
    return float(settings.ABEYANCE_LEASE_SECONDS)


def claim(connection: Connection, run: UUID) -> Claim | None:
    """Take the run if something is due and nobody holds it, else None."""
    owner = uuid4()
    row = connection.execute(
        f"""
        WITH free AS (
            SELECT id, status, {_LEASE_END} AS lease_end FROM runtime_run
            WHERE id = %(run)s
                AND due_at <= clock_timestamp() + %(resend)s * interval '1 second'
                AND status <> 'quarantined'
                AND (lease_until IS NULL OR (lease_until < clock_timestamp()
                    AND pg_postmaster_start_time()
                        < clock_timestamp() - %(lease)s * interval '1 second'))
            FOR UPDATE SKIP LOCKED
        )
        UPDATE runtime_run SET epoch = epoch + 1, owner = %(owner)s, status = 'running',
            lease_until = lease_end, due_at = lease_end
        FROM free WHERE runtime_run.id = free.id
        RETURNING epoch, position, head, base, free.status, clock_timestamp()
        """,
        {"run": run, "owner": owner, "lease": lease_seconds(), "resend": RESEND_SECONDS + 1},
        prepare=True,
    ).fetchone()
    if row is None:
        return None
    epoch, position, head, base, previous, at = row
    return Claim(
        run=run,
        epoch=epoch,
        owner=owner,
        position=position,
        head=head,
        base=base,
        previous=previous,
        at=at,
    )


def release(
    connection: Connection, claim: Claim, *, status: str, mailbox: int, due: datetime | None
) -> bool:
    """Let go of a run that needs nothing before `due`, unless a signal came.

    False if the claim or the mailbox is stale.
    """
    return _let_go(
        connection,
        claim,
        "status = %(status)s, due_at = %(due)s",
        {"status": status, "mailbox": mailbox, "due": due},
        "AND mailbox = %(mailbox)s",
    )


def back_off(connection: Connection, claim: Claim) -> bool:
    """Let go of a run that this worker cannot read, untouched, for another one or a later time."""
    return _let_go(
        connection,
        claim,
        "status = %(status)s, due_at = clock_timestamp() + %(pause)s * interval '1 second'",
        {"status": claim.previous, "pause": BACK_OFF_SECONDS},
    )


def quarantine(connection: Connection, claim: Claim, reason: str) -> bool:
    """Park a run whose journal cannot be verified: it takes no entry and nothing runs."""
    return _let_go(
        connection,
        claim,
        "status = 'quarantined', reason = %(reason)s, due_at = NULL",
        {"reason": reason},
    )


def read(connection: Connection, run: UUID) -> Row:
    row = connection.execute(
        "SELECT epoch, owner, position, mailbox FROM runtime_run WHERE id = %s", (run,)
    ).fetchone()
    if row is None:
        raise LookupError(f"there is no run {run}")
    epoch, owner, position, mailbox = row
    return Row(epoch=epoch, owner=owner, position=position, mailbox=mailbox)


def insert(connection: Connection, row: dict[str, Any]) -> bool:
    """Write a run that is due at once. False if its business key is taken."""
    done = connection.execute(
        """
        INSERT INTO runtime_run
            (id, agent, requester, token, business_key, input, status, position, head, due_at)
        VALUES (%(id)s, %(agent)s, %(requester)s, %(token)s, %(business_key)s, %(input)s,
            'queued', 1, %(head)s, clock_timestamp())
        ON CONFLICT ON CONSTRAINT run_business_key DO NOTHING
        """,
        row,
    )
    return done.rowcount == 1


def ring(connection: Connection, run: UUID) -> None:
    """Raise the mailbox and make the run due: the first act of whoever signals, since it locks the row.

    Raises RunEnded for a run that takes no signals any more.
    """
    row = connection.execute(
        """
        UPDATE runtime_run SET mailbox = mailbox + 1,
            due_at = CASE WHEN ended_at IS NULL AND status <> 'quarantined'
                THEN least(due_at, clock_timestamp()) END
        WHERE id = %s RETURNING ended_at IS NOT NULL, status
        """,
        (run,),
    ).fetchone()
    if row is None:
        raise LookupError(f"there is no run {run}")
    ended, status = row
    if ended:
        raise RunEnded(status)


def due(connection: Connection) -> list[UUID]:
    """Runs that are due, oldest first, pushed back so that no other sweeper takes them at once."""
    rows = connection.execute(
        """
        UPDATE runtime_run SET due_at = clock_timestamp() + %(pause)s * interval '1 second'
        WHERE id IN (
            SELECT id FROM runtime_run WHERE due_at <= clock_timestamp()
            ORDER BY due_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
        RETURNING id
        """,
        {"pause": RESEND_SECONDS, "limit": SWEEP_LIMIT},
    )
    return [row[0] for row in rows.fetchall()]


def _let_go(
    connection: Connection,
    claim: Claim,
    changes: str,
    parameters: dict[str, object],
    condition: str = "",
) -> bool:
    done = connection.execute(
        f"""
        UPDATE runtime_run SET owner = NULL, lease_until = NULL, {changes}
        WHERE id = %(run)s AND epoch = %(epoch)s AND owner = %(owner)s {condition}
        """,
        {"run": claim.run, "epoch": claim.epoch, "owner": claim.owner, **parameters},
    )
    return done.rowcount == 1

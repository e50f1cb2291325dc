"""Claims and releases a run: which worker may advance it, and what that worker writes to its row; `runs` has the rest.

The lease is a worker process's: it renews one row, its own in `runtime_worker`. A run names the process that has it,
its epoch, and an owner token that is new with each claim. The owner's writes name epoch, owner and position, so those
of a worker that was replaced find no row. They do not name the lease: a worker that was not replaced may record the
result it holds.
There is one way to claim: the statement that loads a run that is due and has no owner (`store.loading`). Only the
sweeper takes a run from a process whose lease is over, and notes the loss. Only then can the run be claimed again.
A run stays due for as long as a worker has it, because each change of `due_at` would write every index of the row
anew; who looks for due runs passes over those that a live process has.
Only the database's clock counts, and `clock_timestamp()`, since `now()` stands still in a transaction.
"""

from dataclasses import dataclass
from datetime import datetime
from functools import cache
from uuid import UUID

from django.conf import settings

from runtime.store import workers
from runtime.store.pool import Connection
from runtime.store.tables import kill_switches

HINT_SECONDS = 1.0
RESEND_SECONDS = 5.0
BACK_OFF_SECONDS = 30.0
WINDOW = 2_000  # due runs that `has_waiting_runs` considers

# As part of a statement that is a transaction by itself: its COMMIT does not wait for the disk. If Postgres crashes, a
# claim may be forgotten; its owner then writes nothing more, and no token is given twice. Each later write of a worker
# takes its claim to the disk.
ASYNC_COMMIT = "set_config('synchronous_commit', 'off', true)"

# Asked once for a statement: what may differ from row to row finds nothing in an index.
_DB_NOW = "(SELECT clock_timestamp())"

# When a run is due of which a hint is sent at the same time: the sweeper leaves that a moment to come first.
DUE_SHORTLY = f"clock_timestamp() + {HINT_SECONDS} * interval '1 second'"

# `lease_until` of a run whose lease is its worker's. A worker of the release before renews that column of each run that
# it has, and leaves alone a run with a later time; 'infinity' is no time that Python can read.
_BY_WORKER = "'9000-01-01 00:00Z'"

# Whether the process that has the run is alive.
LIVE = f"""
    coalesce(CASE WHEN lease_until = {_BY_WORKER} THEN {workers.LIVE} ELSE lease_until >= {_DB_NOW} END, false)
"""

# The part of the step statement that moves the run; no row means that the step may not be written.
_ADVANCE = """
    UPDATE runtime_run SET position = %(position)s, head = %(mac)s, status = %(status)s,
        awaits = %(awaits)s, unheard = %(unheard)s{changes}
    WHERE id = %(run)s AND epoch = %(epoch)s AND owner = %(owner)s AND position = %(position)s - 1{condition}
    RETURNING id
"""
# What few steps change besides, and the condition of those that count on the signals that they have read.
_SUSPEND = ", base = %(position)s"
_END = ", ended_at = clock_timestamp(), output = %(output)s, reason = %(reason)s"
_RELEASE = """,
        owner = NULL, lease_until = NULL, losses = 0, isolated = false, due_at = %(due)s::timestamptz"""
_STRICT = " AND mailbox = %(mailbox)s"

# The part of the statement that loads a run which claims it; no row means that the run is not to be had.
CLAIM = f"""
    UPDATE runtime_run SET epoch = epoch + 1, owner = %(owner)s, worker = %(worker)s, lease_until = {_BY_WORKER},
        status = CASE WHEN free.status IN ('cancelling', 'paused') THEN free.status ELSE 'running' END
    FROM (
        SELECT id, status FROM runtime_run
        WHERE id = %(run)s AND owner IS NULL AND isolated = %(isolated)s AND status <> 'quarantined'
            AND due_at <= clock_timestamp() + {RESEND_SECONDS + HINT_SECONDS} * interval '1 second'
            AND NOT ({kill_switches.OF_RUN})
        FOR NO KEY UPDATE SKIP LOCKED) free
    WHERE runtime_run.id = free.id
    RETURNING runtime_run.id, epoch, position, head, base, free.status AS previous, clock_timestamp() AS at,
        {kill_switches.ON} AS stops, losses, mailbox, origin
"""

# The part of the heartbeat statement that finds the mailbox of each run that this process still has.
HELD = f"""
    SELECT runtime_run.owner, mailbox, {kill_switches.ON} AS stops
    FROM unnest(%(runs)s::uuid[], %(owners)s::uuid[]) AS held(run, owner)
    JOIN runtime_run ON runtime_run.id = held.run AND runtime_run.owner = held.owner
"""

# The part of the sweeper's statement that takes a run from a process whose lease is over. `taken` is the row before.
TAKE_OVER = """
    owner = NULL, lease_until = NULL,
    losses = CASE WHEN NOT was_lost THEN losses
        WHEN taken.isolated OR taken.lost_at = taken.position THEN losses + 1 ELSE 1 END,
    lost_at = CASE WHEN was_lost THEN taken.position ELSE taken.lost_at END
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The right to advance a run. `base` is the position of its continuation, 0 without one.

    `worker` is the process that has it, `previous` the status the run had, `at` database time; `stops` names the agents
    stopped then. `losses` counts how often in a row the run was lost with its worker and made no progress; `isolated`
    says that it is alone in its process because of that.
    """

    run: UUID
    epoch: int
    owner: UUID
    position: int
    head: str
    base: int
    previous: str
    at: datetime
    worker: UUID | None = None
    stops: frozenset[str] = frozenset()
    losses: int = 0
    isolated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The run's row as it is now, to find out why a write met no row."""

    epoch: int
    owner: UUID | None
    position: int
    mailbox: int


def lease_seconds() -> float:
    return float(settings.ABEYANCE_LEASE_SECONDS)


def parameters(claim: Claim) -> dict[str, object]:
    """Of a step that is written under this claim."""
    return {"run": claim.run, "epoch": claim.epoch, "owner": claim.owner}


@cache
def advance(*, suspends: bool, ends: bool, releases: bool, strict: bool) -> str:
    """The part of the step statement that moves the run, if it has not ended before."""
    changes = _SUSPEND * suspends + _END * ends + _RELEASE * releases
    return _ADVANCE.format(changes=changes, condition=_STRICT * strict)


def abandon(connection: Connection, run: UUID, owner: UUID) -> None:
    """Release a run that this process may have without working on it. It stays due, and its status as it is."""
    connection.execute(
        "UPDATE runtime_run SET owner = NULL, lease_until = NULL WHERE id = %s AND owner = %s",
        (run, owner),
    )


def release(
    connection: Connection, claim: Claim, *, status: str, mailbox: int, due: datetime | None
) -> bool:
    """Release a run that needs nothing before `due`, unless a signal came.

    False if the claim or the mailbox is stale.
    """
    return _let_go(
        connection,
        claim,
        "status = %(status)s, due_at = %(due)s, losses = 0, isolated = false",
        {"status": status, "mailbox": mailbox, "due": due},
        "AND mailbox = %(mailbox)s",
    )


def back_off(connection: Connection, claim: Claim, seconds: float = BACK_OFF_SECONDS) -> bool:
    """Release a run that this worker cannot act on, untouched, for another one or a later time.

    Its status is as before, unless something was written since.
    """
    return _let_go(
        connection,
        claim,
        "status = CASE WHEN position = %(position)s THEN %(status)s ELSE status END,"
        " due_at = clock_timestamp() + %(pause)s * interval '1 second'",
        {"status": claim.previous, "position": claim.position, "pause": seconds},
    )


def isolate(connection: Connection, claim: Claim) -> bool:
    """Release a run, untouched and due, for a process that has no other."""
    return _let_go(
        connection,
        claim,
        "status = %(status)s, due_at = clock_timestamp(), isolated = true, losses = 0",
        {"status": claim.previous},
    )


def quarantine(connection: Connection, claim: Claim, reason: str) -> bool:
    """Park a run whose journal cannot be verified, or that costs workers their life: nothing of it runs."""
    return _let_go(
        connection,
        claim,
        "status = 'quarantined', reason = %(reason)s, due_at = NULL",
        {"reason": reason},
    )


def lock(connection: Connection, run: UUID) -> None:
    """Lock the run's row until the end of the transaction."""
    connection.execute("SELECT FROM runtime_run WHERE id = %s FOR UPDATE", (run,))


def read(connection: Connection, run: UUID) -> Row:
    row = connection.execute(
        "SELECT epoch, owner, position, mailbox FROM runtime_run WHERE id = %s", (run,)
    ).fetchone()
    if row is None:
        raise LookupError(f"there is no run {run}")
    epoch, owner, position, mailbox = row
    return Row(epoch=epoch, owner=owner, position=position, mailbox=mailbox)


def has_waiting_runs(connection: Connection) -> bool:
    """Whether one of the first 2,000 due runs could continue and has no worker."""
    row = connection.execute(
        f"""
        SELECT EXISTS (SELECT FROM (
            SELECT id, agent FROM runtime_run
            WHERE due_at <= {_DB_NOW} + %s * interval '1 second' AND owner IS NULL
                AND NOT isolated AND status <> 'quarantined'
            ORDER BY due_at LIMIT %s) AS runtime_run
        WHERE NOT ({kill_switches.OF_RUN}))
        """,
        (RESEND_SECONDS, WINDOW),
        prepare=True,
    ).fetchone()
    return row == (True,)


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

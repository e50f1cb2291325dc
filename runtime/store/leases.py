"""Claims and releases runs, and has the statements by which a worker writes the row of its run. `runs` has the others.

A worker process has one lease, its row in `runtime_workerprocess`, and renews it. A run names the process that has it,
its epoch, and an owner token that is new with each claim. The worker's writes require epoch, owner and position, so the
writes of a replaced worker find no row. They do not require the lease: a worker that was not replaced may record the
result it holds.
Only the statement that loads a due run without an owner (`store.loading`) claims it. Only the sweeper releases a run
whose process has an expired lease, and records the lost lease; then the run can be claimed again.
A claimed run stays due, because each change of `due_at` would rewrite every index entry of the row. Queries for due
runs skip those that a live process has.
Only the clock of Postgres counts, by `clock_timestamp()`: `now()` does not advance within a transaction.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from uuid import UUID

from runtime.store import pool, workers
from runtime.store.pool import Connection
from runtime.store.tables import kill_switches

HINT_SECONDS = 1.0
RESEND_SECONDS = 5.0
BACK_OFF_SECONDS = 30.0
WINDOW = 2_000  # due runs that `has_waiting_runs` considers

# For statements that are a transaction by themselves: their COMMIT does not wait for the disk. If Postgres crashes, it
# may lose a claim; the owner's later writes then find no row, and its token is never reused. The next synchronous write
# of the worker also makes its claim durable.
ASYNC_COMMIT = "set_config('synchronous_commit', 'off', true)"

# A subquery is evaluated once for a statement, so Postgres can use an index; a volatile function is not.
DB_NOW = "(SELECT clock_timestamp())"

# The due time of a run whose hint is sent at the same time: the sweeper gives that hint a moment to arrive.
DUE_SHORTLY = f"clock_timestamp() + {HINT_SECONDS} * interval '1 second'"

# True if the process that has the run is alive.
LIVE = f"(runtime_run.owner IS NOT NULL AND {workers.LIVE})"

# The part of the step statement that updates the run; no row means that the step must not be written.
_ADVANCE = """
    UPDATE runtime_run SET position = %(position)s, head = %(head)s, status = %(status)s,
        awaits = %(awaits)s, limited = %(limited)s::jsonb, unheard = %(unheard)s,
        awaits_store = NULL{changes}
    WHERE id = %(run)s AND epoch = %(epoch)s AND owner = %(owner)s AND position = %(position)s - 1{condition}
    RETURNING id
"""
# Each release says when, so that the sweeper finds the runs that have changed without reading the others.
_FREE = "owner = NULL, idle_since = clock_timestamp()"
# Further changes by a few steps, and the condition of steps that depend on the signals they have read.
_SUSPEND = ", base = %(position)s"
_END = ", ended_at = clock_timestamp(), output = %(output)s, reason = %(reason)s"
_RELEASE = f""",
        {_FREE}, losses = 0, isolated = false, due_at = %(due)s::timestamptz"""
_STRICT = " AND mailbox = %(mailbox)s"

# The part of the load statement that claims the run; no row means that the run cannot be claimed. It waits for no lock:
# the transaction that holds the row is claiming the run or changing it, and the sweeper sends another hint.
CLAIM = f"""
    UPDATE runtime_run SET epoch = epoch + 1, owner = %(owner)s, worker = %(worker)s,
        status = CASE WHEN free.status IN ('cancelling', 'paused') THEN free.status ELSE 'running' END
    FROM (
        SELECT id, status FROM runtime_run
        WHERE id = %(run)s AND owner IS NULL AND isolated = %(isolated)s AND status <> 'quarantined'
            AND due_at <= clock_timestamp() + {RESEND_SECONDS + HINT_SECONDS} * interval '1 second'
            AND NOT ({kill_switches.BLOCKS_RUN})
        FOR NO KEY UPDATE SKIP LOCKED) free
    WHERE runtime_run.id = free.id
    RETURNING runtime_run.id, epoch, position, head, base, free.status AS previous, clock_timestamp() AS at,
        {kill_switches.ACTIVE} AS stops, losses, mailbox, origin
"""

# The part of the heartbeat statement that reads the signal count of each run that this process still has.
HELD = f"""
    SELECT runtime_run.owner, mailbox, {kill_switches.ACTIVE} AS stops
    FROM unnest(%(runs)s::uuid[], %(owners)s::uuid[]) AS held(run, owner)
    JOIN runtime_run ON runtime_run.id = held.run AND runtime_run.owner = held.owner
"""

# The part of the sweeper's statement that releases a run with an expired lease. `taken` is the previous row.
TAKE_OVER = f"""
    {_FREE},
    losses = losses + CASE WHEN was_lost THEN 1 ELSE 0 END
"""
GROUPS = (64, 8)  # runs tried together at most: before the first lost group, and before the second
ALONE = len(GROUPS)  # lost groups after which a run is tried alone
MOST = 2_000  # suspects that are read at once

_WAITING = f"""
    SELECT id, losses, extract(epoch FROM clock_timestamp() - due_at)::float FROM runtime_run
    WHERE isolated AND owner IS NULL AND status <> 'quarantined' AND due_at <= clock_timestamp()
        AND id <> ALL(%s) AND NOT ({kill_switches.BLOCKS_RUN})
    ORDER BY due_at, id LIMIT {MOST}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunClaim:
    """The right to advance a run. `continuation_position` is the position of its continuation, 0 without one.

    `worker` is the process that has it, `previous` the status of the run before, `at` database time. `kill_switches`
    names the agents with an engaged kill switch. `lost_leases` counts lost leases in a row without progress;
    `isolated` says that the run is suspected because of them, and counts only leases lost since.
    """

    run: UUID
    epoch: int
    owner: UUID
    position: int
    head: str
    continuation_position: int
    previous: str
    at: datetime
    worker: UUID | None = None
    kill_switches: frozenset[str] = frozenset()
    lost_leases: int = 0
    isolated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRow:
    """The run's row, to find out why a write found no row."""

    epoch: int
    owner: UUID | None
    position: int
    signal_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A suspected run, which has waited for `waits` seconds. `losses` counts the processes that it lost in a row."""

    run: UUID
    losses: int
    waits: float


@cache
def advance(*, suspends: bool, ends: bool, releases: bool, strict: bool) -> str:
    """Return the part of the step statement that updates the run."""
    changes = _SUSPEND * suspends + _END * ends + _RELEASE * releases
    return _ADVANCE.format(changes=changes, condition=_STRICT * strict)


def abandon(connection: Connection, run: UUID, owner: UUID) -> None:
    """Release a run that this process may have claimed and does not work on. It stays due and keeps its status."""
    connection.execute(f"UPDATE runtime_run SET {_FREE} WHERE id = %s AND owner = %s", (run, owner))


def release(
    connection: Connection,
    claim: RunClaim,
    *,
    status: str,
    signal_version: int,
    due: datetime | None,
) -> bool:
    """Release a run until `due`, unless it has received a signal.

    Returns False if the claim or the signal count is stale.
    """
    return _change(
        connection,
        claim,
        f"{_FREE}, status = %(status)s, due_at = %(due)s, losses = 0, isolated = false, awaits_store = NULL",
        {"status": status, "mailbox": signal_version, "due": due},
        "AND mailbox = %(mailbox)s",
    )


def await_store(connection: Connection, claim: RunClaim, reason: str) -> None:
    """Record that the run waits for the object store, while this worker has it. The next step ends the wait."""
    _change(connection, claim, "awaits_store = %(reason)s", {"reason": reason})


def back_off(connection: Connection, claim: RunClaim, seconds: float = BACK_OFF_SECONDS) -> bool:
    """Release a run that this worker cannot advance, for another worker or a later time.

    Its status becomes the previous one, unless an entry was written since.
    """
    return _change(
        connection,
        claim,
        f"{_FREE}, status = CASE WHEN position = %(position)s THEN %(status)s ELSE status END,"
        " due_at = clock_timestamp() + %(pause)s * interval '1 second'",
        {"status": claim.previous, "position": claim.position, "pause": seconds},
    )


def isolate(connection: Connection, claim: RunClaim) -> bool:
    """Release a run, unchanged and due, for a process that tries suspected runs."""
    return _change(
        connection,
        claim,
        f"{_FREE}, status = %(status)s, due_at = clock_timestamp(), isolated = true, losses = 0",
        {"status": claim.previous},
    )


def clear_losses(connection: Connection, claim: RunClaim) -> None:
    """Forget the lost leases of a run that made progress under this claim."""
    _change(connection, claim, "losses = 0", {})


def quarantine(connection: Connection, claim: RunClaim, reason: str) -> bool:
    """Quarantine a run whose journal does not verify, or whose workers die. Workers do not claim it."""
    return _change(
        connection,
        claim,
        f"{_FREE}, status = 'quarantined', reason = %(reason)s, due_at = NULL",
        {"reason": reason},
    )


def lock(connection: Connection, run: UUID) -> None:
    """Lock the run's row until the end of the transaction."""
    connection.execute("SELECT FROM runtime_run WHERE id = %s FOR UPDATE", (run,))


def read(connection: Connection, run: UUID) -> LeaseRow:
    """Read the run's row. Raises LookupError."""
    row = connection.execute(
        "SELECT epoch, owner, position, mailbox FROM runtime_run WHERE id = %s", (run,)
    ).fetchone()
    if row is None:
        raise LookupError(f"there is no run {run}")
    return pool.decode_row(LeaseRow, row)


def has_waiting_runs(connection: Connection) -> bool:
    """Return whether one of the first 2,000 due runs could continue and has no worker."""
    statement = f"""
        SELECT EXISTS (SELECT FROM (
            SELECT id, agent FROM runtime_run
            WHERE due_at <= {DB_NOW} + %(resend)s * interval '1 second' AND owner IS NULL
                AND NOT isolated AND status <> 'quarantined'
            ORDER BY due_at LIMIT %(window)s) AS runtime_run
        WHERE NOT ({kill_switches.BLOCKS_RUN}))
    """
    return pool.fetch_row(connection, statement, {"resend": RESEND_SECONDS, "window": WINDOW}) == (
        True,
    )


def list_waiting_suspects(connection: Connection, *, but: Collection[UUID]) -> list[Suspect]:
    """Return the suspects that no process tries, `but` these, in the order of their trials."""
    rows = connection.execute(_WAITING, (list(but),))
    return [pool.decode_row(Suspect, row) for row in rows]


def count_as_alone(connection: Connection, run: UUID) -> None:
    """Count a suspect that is tried alone as if it had lost its groups: each further loss is its own."""
    connection.execute(
        "UPDATE runtime_run SET losses = greatest(losses, %s) WHERE id = %s AND isolated",
        (ALONE, run),
    )


def _change(
    connection: Connection,
    claim: RunClaim,
    changes: str,
    parameters: dict[str, object],
    condition: str = "",
) -> bool:
    cursor = connection.execute(
        f"""
        UPDATE runtime_run SET {changes}
        WHERE id = %(run)s AND epoch = %(epoch)s AND owner = %(owner)s {condition}
        """,
        {"run": claim.run, "epoch": claim.epoch, "owner": claim.owner, **parameters},
    )
    return cursor.rowcount == 1

"""The runs' keeper: who may advance a run, for how long, and what it writes to the row; `rows` has the rest.

A claim is one conditional UPDATE that raises the epoch and sets a random owner until `lease_until`.
The owner's writes name epoch, owner and position, so those of a worker that was replaced find no row.
They do not name `lease_until`: a worker whom nobody replaced may record the result it holds.
A run without a known loss is claimed by its first step: the statement that loads it writes
nothing, and of all who looked only the first one's step finds the row as it was. A worker that dies in between
leaves no trace but a run that is still due. So the sweeper notes on the row that it had to push the run, and such
a run, like one that lost its owner, is claimed by a statement of its own before anybody loads it (`claim`).
A run stays due for as long as a worker has it, because each change of `due_at` would write every index of the row
anew; who looks for due runs passes over those with a lease.
Only the database's clock counts, and `clock_timestamp()`, since `now()` stands still in a transaction.
After a start of Postgres nobody is robbed of a lease for one lease: its owner could not renew it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from django.conf import settings

from runtime.store import kill_switches, workers
from runtime.store.pool import Connection

HINT_SECONDS = 1.0
RESEND_SECONDS = 5.0
BACK_OFF_SECONDS = 30.0
WINDOW = 2_000  # due runs that `others_wait` considers

# As part of a statement that is a transaction by itself: its COMMIT does not wait for the disk. For who has a run,
# until when: should Postgres crash, nobody is robbed before one lease is over, an owner's token is never given
# twice, and whatever a worker wrote after its claim took the claim to the disk with it.
UNHURRIED = "set_config('synchronous_commit', 'off', true)"

# Asked once for a statement: what may differ from row to row finds nothing in an index.
_ONCE = "(SELECT clock_timestamp())"

# When a run is due of which a hint is sent at the same time: the sweeper leaves that a moment to come first.
HINTED = f"clock_timestamp() + {HINT_SECONDS} * interval '1 second'"

_LEASE_END = "clock_timestamp() + %(lease)s * interval '1 second'"

# Whether Postgres has been there long enough for every owner to have renewed its lease.
MAY_ROB = "pg_postmaster_start_time() < clock_timestamp() - %(lease)s * interval '1 second'"

# Whether the lease of a run that a worker has is over.
OVER = f"(lease_until IS NULL OR lease_until < {_ONCE})"

# The part of the step statement that moves the run; no row means that the step may not be written.
# The first step under a claim that was not made before makes it.
ADVANCE = f"""
    UPDATE runtime_run SET epoch = %(epoch)s, worker = %(worker)s, pushed = false,
        position = %(position)s, head = %(mac)s, status = %(status)s,
        base = CASE WHEN %(suspends)s THEN %(position)s ELSE base END,
        output = %(output)s, reason = %(reason)s, awaits = %(awaits)s, unheard = %(unheard)s,
        ended_at = CASE WHEN %(ended)s THEN clock_timestamp() END,
        owner = CASE WHEN %(release)s THEN NULL ELSE %(owner)s::uuid END,
        losses = CASE WHEN %(release)s THEN 0 ELSE losses END,
        isolated = isolated AND NOT %(release)s,
        lease_until = CASE WHEN %(release)s THEN NULL WHEN %(claims)s THEN {_LEASE_END}
            ELSE lease_until END,
        due_at = CASE WHEN %(release)s THEN %(due)s::timestamptz ELSE due_at END
    WHERE id = %(run)s AND epoch = %(epoch_before)s
        AND owner IS NOT DISTINCT FROM %(owner_before)s::uuid AND position = %(position)s - 1
        AND (NOT %(strict)s OR mailbox = %(mailbox)s)
    RETURNING id
"""

# Parts of the statement that loads a run: which may be claimed by their first step, and what such a claim is made of.
FREE = f"""
    owner IS NULL AND NOT pushed AND NOT isolated AND due_at <= {HINTED} AND status <> 'quarantined'
    AND NOT ({kill_switches.OF_RUN})
"""
COLUMNS = f"""
    epoch + 1, runtime_run.position, runtime_run.head, base, status, clock_timestamp(), {kill_switches.ON}, losses
"""
NUMBER = 8  # of these

# The part of the heartbeat statement that renews every lease of a process. It waits for no row: a lease whose row is
# locked is renewed by a later beat, and until its row is free no other worker can take the run either.
RENEW = f"""
    held AS (SELECT run, owner FROM unnest(%(runs)s::uuid[], %(owners)s::uuid[]) AS h(run, owner)),
    ours AS (
        SELECT runtime_run.owner, mailbox FROM held
        JOIN runtime_run ON runtime_run.id = held.run AND runtime_run.owner = held.owner),
    free AS (
        SELECT runtime_run.id FROM held
        JOIN runtime_run ON runtime_run.id = held.run AND runtime_run.owner = held.owner
        FOR NO KEY UPDATE OF runtime_run SKIP LOCKED),
    renewed AS (
        UPDATE runtime_run SET lease_until = {_LEASE_END}
        FROM free WHERE runtime_run.id = free.id RETURNING runtime_run.owner)
    SELECT beat.beat_at, ours.owner, ours.mailbox, {kill_switches.ON}, renewed.owner IS NOT NULL, {UNHURRIED}
    FROM beat LEFT JOIN ours ON true LEFT JOIN renewed ON renewed.owner = ours.owner
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The right to advance a run. `base` is the position of its continuation, 0 without one.

    One that is not `made` is a wish: the row is as it was, and only a first step can be written under it. `worker`
    is the process that has it.
    `previous` is the status it had; `at` is database time; `stops` names the agents stopped then.
    `was_lost` says that somebody held it whose lease ran out, `losses` how often in a row that happened
    without the run getting on; `isolated` that it is alone in its process because of it.
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
    made: bool = True
    stops: frozenset[str] = frozenset()
    was_lost: bool = False
    losses: int = 0
    isolated: bool = False

    @property
    def before(self) -> tuple[int, UUID | None]:
        """Epoch and owner that the row must have for the next write."""
        return (self.epoch, self.owner) if self.made else (self.epoch - 1, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The run's row as it is now, to find out why a write met no row."""

    epoch: int
    owner: UUID | None
    position: int
    mailbox: int


def lease_seconds() -> float:
    return float(settings.ABEYANCE_LEASE_SECONDS)


def wish(run: UUID, row: Sequence[Any], *, worker: UUID | None = None) -> Claim:
    """A claim for the first step to make, of what COLUMNS found where FREE holds."""
    epoch, position, head, base, previous, at, stopped, lost = row
    return Claim(
        run=run,
        epoch=epoch,
        owner=uuid4(),
        worker=worker,
        made=False,
        position=position,
        head=head,
        base=base,
        previous=previous,
        at=at,
        stops=frozenset(stopped),
        losses=lost,
    )


def parameters(claim: Claim) -> dict[str, object]:
    """Of a step that is written under this claim."""
    epoch, owner = claim.before
    return {
        "run": claim.run,
        "epoch": claim.epoch,
        "owner": claim.owner,
        "worker": claim.worker,
        "epoch_before": epoch,
        "owner_before": owner,
        "claims": not claim.made,
        "lease": lease_seconds(),
    }


def claim(
    connection: Connection,
    run: UUID,
    *,
    worker: UUID | None = None,
    isolated: bool = False,
    robs: bool = True,
) -> Claim | None:
    """Take the run if something is due and nobody holds it, else None. `worker` is this process.

    A lease that ran out is noted with the process that had it. `isolated` takes runs that are, and no others.
    Without `robs` no run is taken that a worker has.
    """
    owner = uuid4()
    row = connection.execute(
        f"""
        WITH free AS (
            SELECT id, status, worker, position, isolated, lost_at, owner IS NOT NULL AS was_lost,
                {_LEASE_END} AS lease_end
            FROM runtime_run
            WHERE id = %(run)s AND isolated = %(isolated)s
                AND due_at <= clock_timestamp() + %(resend)s * interval '1 second'
                AND status <> 'quarantined' AND NOT ({kill_switches.OF_RUN})
                AND (lease_until IS NULL OR (%(robs)s AND lease_until < clock_timestamp() AND {MAY_ROB}))
            FOR UPDATE SKIP LOCKED
        ),
        noted AS ({workers.NOTE_LOSS})
        UPDATE runtime_run SET epoch = epoch + 1, owner = %(owner)s,
            status = CASE WHEN free.status IN ('cancelling', 'paused') THEN free.status ELSE 'running' END,
            lease_until = lease_end, worker = %(worker)s,
            losses = CASE WHEN NOT was_lost THEN losses
                WHEN free.isolated OR free.lost_at = free.position THEN losses + 1 ELSE 1 END,
            lost_at = CASE WHEN was_lost THEN free.position ELSE free.lost_at END
        FROM free WHERE runtime_run.id = free.id
        RETURNING epoch, runtime_run.position, head, base, free.status, clock_timestamp(),
            {kill_switches.ON}, was_lost, losses, {UNHURRIED}
        """,
        {
            "run": run,
            "owner": owner,
            "worker": worker,
            "isolated": isolated,
            "robs": robs,
            "lease": lease_seconds(),
            "resend": RESEND_SECONDS + 1,
        },
        prepare=True,
    ).fetchone()
    if row is None:
        return None
    epoch, position, head, base, previous, at, stopped, was_lost, lost, _ = row
    return Claim(
        run=run,
        epoch=epoch,
        owner=owner,
        worker=worker,
        position=position,
        head=head,
        base=base,
        previous=previous,
        at=at,
        stops=frozenset(stopped),
        was_lost=was_lost,
        losses=lost,
        isolated=isolated,
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
        "status = %(status)s, due_at = %(due)s, losses = 0, isolated = false",
        {"status": status, "mailbox": mailbox, "due": due},
        "AND mailbox = %(mailbox)s",
    )


def back_off(connection: Connection, claim: Claim, seconds: float = BACK_OFF_SECONDS) -> bool:
    """Let go of a run that this worker cannot act on, untouched, for another one or a later time.

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
    """Let go of a run, untouched and due, for a process that has no other."""
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


def now(connection: Connection) -> datetime:
    """What Postgres' clock says."""
    row = connection.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None
    at: datetime = row[0]
    return at


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


def others_wait(connection: Connection) -> bool:
    """Whether one of the first 2,000 due runs could continue and has no worker."""
    row = connection.execute(
        f"""
        SELECT EXISTS (SELECT FROM (
            SELECT id, agent FROM runtime_run
            WHERE due_at <= {_ONCE} + %s * interval '1 second' AND owner IS NULL
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

"""Due runs: find them in Postgres and send a hint for each. Any number of sweepers share them.

A look locks up to 200 due runs, the oldest first, skips those that another transaction has locked, and moves them five
seconds on. So no two sweepers send the same hint, and a run whose hint was lost is due again soon. A hint is sent only
while its queue has room, so a hint is not repeated over and over before a worker comes to it.

For one lease after its own reconnect, and after Postgres' clock has jumped, a sweeper leaves out the runs that a worker
has: the workers met the same trouble and need that time to renew what they hold.
"""

import threading
import time
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import psycopg

from runtime import database, dispatch, leases, stops
from runtime.calm import Calm
from runtime.database import Connection
from runtime.dispatch import Hint
from runtime.upkeep.alarm import Alarm
from runtime.workers import sweeper_name

SWEEP_SECONDS = 1.0  # from the end of the line to the next look, and from a failure
BATCH = 200  # hints of one look
WINDOW = 2_000  # due runs that one look considers
BREATH_SECONDS = 0.01  # between two looks when the first found fewer hints to send than it may
FULL_SECONDS = 0.1  # the same while a queue is full
PASS_SECONDS = 10.0  # of full batches, after which the next look begins with the oldest run again


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A place in the line of due runs."""

    due_at: datetime
    run: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How many hints were sent, and where the next look begins: at the oldest run if `end` is None."""

    hints: int
    end: Place | None

    @property
    def is_full(self) -> bool:
        return self.hints >= BATCH


def run(stop: threading.Event) -> None:
    """Send hints until `stop`; connect again whenever Postgres was out of reach."""
    alarm, calm = Alarm("due_runs"), Calm()
    while not stop.is_set():
        try:
            with database.own(sweeper_name()) as connection:
                _run_with(connection, stop, alarm, calm)
        except psycopg.Error as exc:
            alarm.failed(exc, again=SWEEP_SECONDS)
            stop.wait(SWEEP_SECONDS)
        calm.begin()


def _run_with(connection: Connection, stop: threading.Event, alarm: Alarm, calm: Calm) -> None:
    after: Place | None = None
    restart_at = float("inf")
    while not stop.is_set():
        calm.look(leases.now(connection))
        try:
            queues = dispatch.queues_with_room()
            found = look(connection, queues, robs=calm.over, after=after)
        except ConnectionError as exc:
            alarm.failed(exc, again=SWEEP_SECONDS)
            stop.wait(SWEEP_SECONDS)
            continue
        alarm.done(connection)
        after = found.end
        if found.is_full:
            # A run that has become due before this place must not wait until the end of a long line.
            restart_at = min(restart_at, time.monotonic() + PASS_SECONDS)
            after = after if time.monotonic() < restart_at else None
        if after is None:
            restart_at = float("inf")
        stop.wait(_pause(found, queues))


def _pause(found: Look, queues: Collection[str]) -> float:
    if found.is_full:
        return 0.0
    if found.end is None:
        return SWEEP_SECONDS
    return FULL_SECONDS if len(queues) < len(dispatch.QUEUES) else BREATH_SECONDS


def look(
    connection: Connection,
    queues: Collection[str] = dispatch.QUEUES,
    *,
    robs: bool = True,
    after: Place | None = None,
) -> Look:
    """Send a hint for each of the oldest due runs after a place whose queue is one of these.

    Without `robs` none for a run that a worker has. Raises ConnectionError if the broker is out of reach: those runs
    are due again in five seconds.
    """
    until = _window(connection, after)
    taken = _take(connection, queues, robs=robs, after=after, until=until)
    dispatch.send_all([hint for hint, _ in taken])
    places = [place for _, place in taken]
    full = len(places) >= BATCH
    last = max(places, key=lambda place: (place.due_at, place.run)) if full else until
    return Look(hints=len(taken), end=last)


def _window(connection: Connection, after: Place | None) -> Place | None:
    """Where the next 2,000 due runs after a place end; None if there are fewer.

    However many agents are stopped, a look is short, and the runs behind theirs have their turn.
    """
    row = connection.execute(
        f"""
        SELECT due_at, id FROM runtime_run WHERE due_at <= {_ONCE} AND {_BETWEEN}
        ORDER BY due_at, id OFFSET %(window)s LIMIT 1
        """,
        {**_bounds(after, None), "window": WINDOW - 1},
    ).fetchone()
    return None if row is None else Place(due_at=row[0], run=row[1])


def _take(
    connection: Connection,
    queues: Collection[str],
    *,
    robs: bool,
    after: Place | None,
    until: Place | None,
) -> list[tuple[Hint, Place]]:
    """Move up to 200 runs five seconds on. Returns their hints, and where they were.

    Without `robs`, and for one lease after a start of Postgres, none whose lease ran out: no worker could claim it
    then, or its owner may be about to renew it. That they were pushed stays on the row until a step is written.
    """
    rows = connection.execute(
        f"""
        UPDATE runtime_run SET pushed = true, due_at = clock_timestamp() + %(pause)s * interval '1 second'
        FROM (
            SELECT id, due_at FROM runtime_run WHERE due_at <= {_ONCE} AND {_BETWEEN} AND NOT ({stops.OF_RUN})
                AND (owner IS NULL OR (%(robs)s AND {leases.MAY_ROB}))
                AND {_QUEUE} = ANY(%(queues)s)
            ORDER BY due_at, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED) AS taken
        WHERE runtime_run.id = taken.id
        RETURNING taken.id, {_QUEUE}, taken.due_at, {leases.UNHURRIED}
        """,
        {
            **_bounds(after, until),
            "pause": leases.RESEND_SECONDS,
            "limit": BATCH,
            "robs": robs,
            "queues": list(queues),
            "lease": leases.lease_seconds(),
        },
    )
    return [((run, queue), Place(due_at=due_at, run=run)) for run, queue, due_at, _ in rows]


# Asked once for a statement: what may differ from row to row finds nothing in an index.
_ONCE = "(SELECT clock_timestamp())"

_QUEUE = f"""
    CASE WHEN isolated THEN '{dispatch.ISOLATED}' WHEN status = 'queued' THEN '{dispatch.NEW}'
        ELSE '{dispatch.RESUMED}' END
"""

# The due runs after one place and up to another. The first comparison alone finds its way in the index.
_BETWEEN = """
    (%(after)s::timestamptz IS NULL OR (due_at >= %(after)s AND (due_at, id) > (%(after)s, %(after_run)s::uuid)))
    AND (%(until)s::timestamptz IS NULL OR (due_at <= %(until)s AND (due_at, id) <= (%(until)s, %(until_run)s::uuid)))
"""


def _bounds(after: Place | None, until: Place | None) -> dict[str, object]:
    return {
        "after": after and after.due_at,
        "after_run": after and after.run,
        "until": until and until.due_at,
        "until_run": until and until.run,
    }

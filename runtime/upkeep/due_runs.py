"""Due runs: find them in Postgres and send a hint for each. Any number of sweepers share them.

A look locks up to 200 due runs, the oldest first, skips those that another transaction has locked, and moves them five
seconds on. So no two sweepers send the same hint, and a run whose hint was lost is due again soon. A hint is sent only
while its queue has room, so a hint is not repeated over and over before a worker comes to it.

A due run whose worker's lease is over is taken from it by the same statement, with a note of the loss.
For one lease after its start and after each reconnect, and after Postgres' clock has jumped, a sweeper leaves out the
runs that a worker has: the workers may have met the same trouble and need that time to renew their leases.
"""

import math
import threading
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import psycopg

from runtime.broker import dispatch
from runtime.broker.dispatch import Hint
from runtime.store import leases, pool, workers
from runtime.store.pool import Connection
from runtime.store.tables import kill_switches
from runtime.store.workers import sweeper_name
from runtime.upkeep.alarm import Alarm, Note
from runtime.upkeep.takeover_delay import TakeoverDelay

SWEEP_SECONDS = 1.0  # from the end of the line to the next look, and from a failure
BATCH = 200  # hints of one look
WINDOW = 2_000  # due runs that one look considers
BREATH_SECONDS = 0.01  # between two looks when the first found fewer hints to send than it may
FULL_SECONDS = 0.1  # the same while a queue is full
PASS_SECONDS = 10.0  # of full batches, after which the next look begins with the oldest run again

Place = tuple[datetime | str, UUID]  # in the line of due runs, by `due_at` and id
BEGINNING: Place = ("-infinity", UUID(int=0))
END: Place = ("infinity", UUID(int=2**128 - 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How many hints were sent, and the place up to which due runs were looked at."""

    hints: int
    end: Place


def run(stop: threading.Event) -> None:
    """Send hints until `stop`; connect again whenever Postgres was out of reach."""
    alarm, delay, alive = Alarm("due_runs"), TakeoverDelay(), Note(sweeper_name())
    delay.begin()
    while not stop.is_set():
        try:
            with pool.own(sweeper_name()) as connection:
                for pause in _looks(connection, alarm, delay, alive):
                    if stop.wait(pause):
                        return
        except psycopg.Error as exc:
            alarm.failed(exc, again=SWEEP_SECONDS)
            stop.wait(SWEEP_SECONDS)
            delay.begin()


def _looks(
    connection: Connection, alarm: Alarm, delay: TakeoverDelay, alive: Note
) -> Iterator[float]:
    """Look along the line of due runs again and again. Gives the pause after each look.

    Ten seconds of full batches after the first one, the next look begins anew: a run that has become due before the
    place of this one must not wait until the end of a long line.
    """
    after, again_at = BEGINNING, math.inf
    while True:
        delay.look(pool.now(connection))
        alive.write(connection)
        try:
            queues = dispatch.queues_with_room()
            found = look(connection, queues, may_take_over=delay.over, after=after)
        except ConnectionError as exc:
            alarm.failed(exc, again=SWEEP_SECONDS)
            yield SWEEP_SECONDS
            continue
        alarm.done(connection)
        after, pause = found.end, 0.0
        if found.hints == BATCH:
            again_at = min(again_at, time.monotonic() + PASS_SECONDS)
            after = after if time.monotonic() < again_at else END
        elif after != END:
            pause = BREATH_SECONDS if len(queues) == len(dispatch.QUEUES) else FULL_SECONDS
        else:
            pause = SWEEP_SECONDS
        if after == END:
            after, again_at = BEGINNING, math.inf
        yield pause


def look(
    connection: Connection,
    queues: Collection[str] = dispatch.QUEUES,
    *,
    may_take_over: bool = True,
    after: Place = BEGINNING,
) -> Look:
    """Send a hint for each of the oldest due runs after a place whose queue is one of these.

    Without `may_take_over` none for a run that a worker has. Raises ConnectionError if the broker is out of reach; then
    those runs are due again in five seconds.
    """
    until = _window(connection, after)
    taken = _take(connection, queues, may_take_over=may_take_over, after=after, until=until)
    dispatch.send_all([hint for hint, _ in taken])
    full = len(taken) == BATCH
    return Look(hints=len(taken), end=max(place for _, place in taken) if full else until)


def _window(connection: Connection, after: Place) -> Place:
    """Where the next 2,000 due runs after a place end.

    However many agents are stopped, a look is short, and the runs behind theirs have their turn.
    """
    row = connection.execute(
        f"""
        SELECT due_at, id FROM runtime_run WHERE due_at <= {_DB_NOW} AND {_BETWEEN}
        ORDER BY due_at, id OFFSET %(window)s LIMIT 1
        """,
        {**_bounds(after, END), "window": WINDOW - 1},
    ).fetchone()
    return END if row is None else (row[0], row[1])


def _take(
    connection: Connection,
    queues: Collection[str],
    *,
    may_take_over: bool,
    after: Place,
    until: Place,
) -> list[tuple[Hint, Place]]:
    """Move up to 200 runs five seconds on. Returns their hints, and where they were.

    Without `may_take_over` none that a worker has, whose lease may be about to be renewed.
    """
    rows = connection.execute(
        f"""
        WITH taken AS MATERIALIZED (
            SELECT id, due_at, worker, position, isolated, lost_at, owner IS NOT NULL AS was_lost
            FROM runtime_run WHERE due_at <= {_DB_NOW} AND {_BETWEEN} AND NOT ({kill_switches.OF_RUN})
                AND (owner IS NULL OR (%(may_take_over)s AND NOT {leases.LIVE}))
                AND {_QUEUE} = ANY(%(queues)s)
            ORDER BY due_at, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED),
        noted AS ({workers.NOTE_LOSS})
        UPDATE runtime_run SET {leases.TAKE_OVER},
            due_at = clock_timestamp() + %(pause)s * interval '1 second'
        FROM taken WHERE runtime_run.id = taken.id
        RETURNING taken.id, {_QUEUE}, taken.due_at, {leases.ASYNC_COMMIT}
        """,
        {
            **_bounds(after, until),
            "pause": leases.RESEND_SECONDS,
            "limit": BATCH,
            "may_take_over": may_take_over,
            "queues": list(queues),
        },
    )
    return [((run, queue), (due_at, run)) for run, queue, due_at, _ in rows]


# Asked once for a statement: what may differ from row to row finds nothing in an index.
_DB_NOW = "(SELECT clock_timestamp())"

_QUEUE = f"""
    CASE WHEN runtime_run.isolated THEN '{dispatch.ISOLATED}' WHEN status = 'queued' THEN '{dispatch.NEW}'
        ELSE '{dispatch.RESUMED}' END
"""

# The due runs after one place and up to another.
_BETWEEN = """
    (due_at, id) > (%(after_at)s::timestamptz, %(after)s::uuid)
    AND (due_at, id) <= (%(until_at)s::timestamptz, %(until)s::uuid)
"""


def _bounds(after: Place, until: Place) -> dict[str, object]:
    return {"after_at": after[0], "after": after[1], "until_at": until[0], "until": until[1]}

"""Sends a hint for each due run. Several sweepers can share the work.

A pass locks up to 200 due runs, the oldest first, skips runs that another transaction has locked, and makes them due
five seconds later. So two sweepers never send the same hint, and a run whose hint was lost is due again soon. The
sweeper sends a hint only while its queue has room, so hints do not pile up for a slow worker.

If the lease of a due run's worker has expired, the same statement releases the run and records the lost lease. For
one lease period after it starts, reconnects, or Postgres' clock jumps, a sweeper skips claimed runs. Their workers
may have had the same problem and need that time to renew their leases.
"""

import math
import threading
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from operator import itemgetter
from uuid import UUID

import psycopg
from django.conf import settings

from runtime import broker
from runtime.store import leases, pool, workers
from runtime.store.pool import Connection
from runtime.store.tables import kill_switches
from runtime.store.workers import name_sweeper
from runtime.upkeep.alarm import Alarm, Note

SWEEP_SECONDS = 1.0  # between the last due run and the next pass, and after a failure
BATCH = 200  # hints of one pass
WINDOW = 2_000  # due runs that one pass considers
PAUSE_SECONDS = 0.01  # between two passes if the first one sent less than a full batch
FULL_SECONDS = 0.1  # the same while a queue is full
PASS_SECONDS = 10.0  # of full batches, after which the next pass starts with the oldest run again
Place = tuple[datetime | str, UUID]  # a position in the order of due runs: `due_at` and id
BEGINNING: Place = ("-infinity", UUID(int=0))
END: Place = ("infinity", UUID(int=2**128 - 1))

_QUEUE = f"""
    CASE WHEN status = 'queued' THEN '{broker.NEW}' ELSE '{broker.RESUMED}' END
"""

# Due runs after one place and up to another.
_BETWEEN = """
    (due_at, id) > (%(after_at)s::timestamptz, %(after)s::uuid)
    AND (due_at, id) <= (%(until_at)s::timestamptz, %(until)s::uuid)
"""


class TakeoverDelay:
    """Delays the release of runs whose worker's lease expired, by one lease period from each `begin`.

    The worker may have been unable to renew it: after a restart of Postgres, the promotion of a standby, or if
    Postgres' clock advanced more than this process's, because it was set ahead or the machine slept.
    """

    def __init__(self) -> None:
        self._until = 0.0
        self._observed: tuple[datetime, float] | None = None

    def begin(self) -> None:
        """Restart the delay, because this process has connected."""
        self._until = time.monotonic() + settings.SIGNOFF_LEASE_SECONDS
        self._observed = None

    def observe(self, at: datetime) -> None:
        """Compare how far Postgres' clock, now at `at`, and our clock advanced since the last call."""
        # time.monotonic() and not clock.elapsed(): time in which the machine slept must show.
        now = time.monotonic()
        if self._observed is not None:
            ahead = (at - self._observed[0]).total_seconds() - (now - self._observed[1])
            if (
                ahead > settings.SIGNOFF_LEASE_SECONDS / 2
            ):  # a smaller jump expires no lease that its worker renews
                self._until = now + settings.SIGNOFF_LEASE_SECONDS
        self._observed = (at, now)

    @property
    def over(self) -> bool:
        """Return whether expired leases may be taken over."""
        return time.monotonic() >= self._until


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The number of hints that a pass sent, and the place at which it ended."""

    hints: int
    end: Place


def run(stop: threading.Event) -> None:
    """Send hints until `stop`; reconnect whenever Postgres was unreachable."""
    alarm, delay, alive = Alarm("due_runs"), TakeoverDelay(), Note(name_sweeper())
    delay.begin()
    while not stop.is_set():
        try:
            with pool.open_own(name_sweeper()) as connection:
                for pause in _dispatch_windows(connection, alarm, delay, alive):
                    if stop.wait(pause):
                        return
        except psycopg.Error as exc:
            alarm.log_failure(exc, again=SWEEP_SECONDS)
            stop.wait(SWEEP_SECONDS)
            delay.begin()


def dispatch_window(
    connection: Connection,
    queues: Collection[str] = broker.QUEUES,
    *,
    may_take_over: bool = True,
    after: Place = BEGINNING,
) -> Window:
    """Send a hint for each of the oldest due runs after a place, if its queue is one of these.

    Without `may_take_over` skip runs that a worker has. If the broker is unreachable, raise ConnectionError; the runs
    are due again in five seconds.
    """
    # A window of 2,000 due runs bounds a pass even if kill switches block many runs: the next one continues after them.
    row = connection.execute(
        f"""
        SELECT due_at, id FROM runtime_run WHERE due_at <= {leases.DB_NOW} AND {_BETWEEN}
        ORDER BY due_at, id OFFSET %(window)s LIMIT 1
        """,
        {**_build_bounds(after, END), "window": WINDOW - 1},
    ).fetchone()
    until = END if row is None else (row[0], row[1])
    selected = _select(connection, queues, may_take_over=may_take_over, after=after, until=until)
    broker.send_all([(run, queue) for run, queue, _ in selected if queue is not None])
    full = len(selected) == BATCH
    return Window(hints=len(selected), end=max(place for *_, place in selected) if full else until)


def _dispatch_windows(
    connection: Connection, alarm: Alarm, delay: TakeoverDelay, alive: Note
) -> Iterator[float]:
    """Look for due runs, batch by batch. Yields the pause after each pass.

    After ten seconds of full batches the next pass starts with the oldest run again. So a run that has become due
    meanwhile does not wait for all the others.
    """
    after, repeat_at = BEGINNING, math.inf
    while True:
        started = time.monotonic()
        delay.observe(pool.read_clock(connection))
        alive.write(connection)
        try:
            queues = broker.list_queues_with_room()
            window = dispatch_window(connection, queues, may_take_over=delay.over, after=after)
        except ConnectionError as exc:
            alarm.log_failure(exc, again=SWEEP_SECONDS)
            yield SWEEP_SECONDS
            continue
        alarm.record_success(connection, took=time.monotonic() - started)
        after, pause = window.end, 0.0
        if window.hints == BATCH:
            repeat_at = min(repeat_at, time.monotonic() + PASS_SECONDS)
            after = after if time.monotonic() < repeat_at else END
        elif after != END:
            pause = PAUSE_SECONDS if len(queues) == len(broker.QUEUES) else FULL_SECONDS
        else:
            pause = SWEEP_SECONDS
        if after == END:
            after, repeat_at = BEGINNING, math.inf
        yield pause


def _select(
    connection: Connection,
    queues: Collection[str],
    *,
    may_take_over: bool,
    after: Place,
    until: Place,
) -> list[tuple[UUID, str | None, Place]]:
    """Make up to 200 runs due five seconds later. Returns each with the queue of its hint, and its previous place.

    A suspected run gets no hint: the `isolated` process reads it from Postgres. It is due at once.

    Without `may_take_over` skip runs that a worker has: it may be about to renew its lease. The oldest place is first.
    """
    rows = connection.execute(
        f"""
        WITH taken AS MATERIALIZED (
            SELECT id, due_at, worker, position, isolated, owner IS NOT NULL AS was_lost
            FROM runtime_run WHERE due_at <= {leases.DB_NOW} AND {_BETWEEN} AND NOT ({kill_switches.BLOCKS_RUN})
                AND (owner IS NULL OR (%(may_take_over)s AND NOT {leases.LIVE}))
                AND CASE WHEN isolated THEN owner IS NOT NULL ELSE {_QUEUE} = ANY(%(queues)s) END
            ORDER BY due_at, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED),
        noted AS ({workers.NOTE_LOSS})
        UPDATE runtime_run SET {leases.TAKE_OVER},
            due_at = clock_timestamp() + CASE WHEN taken.isolated THEN 0 ELSE %(pause)s END * interval '1 second'
        FROM taken WHERE runtime_run.id = taken.id
        RETURNING taken.id, CASE WHEN taken.isolated THEN NULL ELSE {_QUEUE} END, taken.due_at,
            {leases.ASYNC_COMMIT}
        """,
        {
            **_build_bounds(after, until),
            "pause": leases.RESEND_SECONDS,
            "limit": BATCH,
            "may_take_over": may_take_over,
            "queues": list(queues),
        },
    )
    selected = [(run, queue, (due_at, run)) for run, queue, due_at, _ in rows]
    return sorted(selected, key=itemgetter(2))  # the UPDATE returns them in any order


def _build_bounds(after: Place, until: Place) -> dict[str, object]:
    return {"after_at": after[0], "after": after[1], "until_at": until[0], "until": until[1]}

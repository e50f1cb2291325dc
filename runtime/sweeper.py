"""Whatever is due gets another hint, and the journal's partitions are made ahead.

Any number of sweepers may run. For one lease after its own reconnect, and after Postgres' clock has jumped, a sweeper
hints at no run that a worker has: the workers met the same trouble and need that time to renew what they hold.
"""

import logging
import threading
from collections.abc import Callable
from functools import partial

import psycopg
from django.db import close_old_connections

from runtime import database, dispatch, journal, leases, retention, spent
from runtime.calm import Calm
from runtime.errors import KeyMissing, LedgerBroken
from runtime.workers import FORGET, sweeper_name

log = logging.getLogger(__name__)

SWEEP_SECONDS = 1.0
BREATH_SECONDS = 0.01  # between two sweeps of one pass, most of whose runs are stopped
UPKEEP_SECONDS = 3600.0
AGAIN_SECONDS = 60.0  # to the next upkeep after one that failed


def sweep(
    connection: database.Connection,
    *,
    robs: bool = True,
    after: leases.Place | None = None,
    until: leases.Place | None = None,
) -> int:
    """Hint at every run that is due between two places in the line, at most 200 at a time.

    Without `robs` at none that a worker has. Returns how many.
    """
    runs = leases.due(connection, robs=robs, after=after, until=until)
    for one in runs:
        dispatch.hint(one.run, _queue(one))
    return len(runs)


def _queue(one: leases.Due) -> str:
    if one.isolated:
        return dispatch.ISOLATED
    return dispatch.NEW if one.new else dispatch.RESUMED


def upkeep(connection: database.Connection, stop: threading.Event) -> bool:
    """What must happen now and then: partitions two months ahead, workers long gone forgotten, retention.

    One that fails keeps no other from being done. Returns whether all were done.
    """
    duties: tuple[Callable[[], object], ...] = (
        partial(journal.make_partitions, connection),
        partial(connection.execute, FORGET),
        partial(_compare_ledger, connection),
        partial(retention.enforce, connection, stop),
    )
    done = [_is_done(duty) for duty in duties]
    close_old_connections()
    return all(done)


def _is_done(duty: Callable[[], object]) -> bool:
    try:
        duty()
    except Exception:  # whatever it was, the next time may be better
        log.exception("upkeep interrupted; again in %g s", AGAIN_SECONDS)
        return False
    return True


def _compare_ledger(connection: database.Connection) -> None:
    """Raise an alarm for every approval that was used here and of which the database knows nothing any more."""
    try:
        lost = spent.missing(connection)
    except (LedgerBroken, KeyMissing, OSError) as problem:
        log.critical("the ledger cannot be told: %s", problem)
        return
    for line in lost:
        log.critical("the ledger says what the database does not know of: %s", line)


def run(stop: threading.Event) -> None:
    """Sweep every second until `stop`; what may take long, the upkeep, goes on beside it."""
    beside = threading.Thread(target=_keep_up, args=[stop], name="upkeep")
    beside.start()
    try:
        _sweep(stop)
    finally:
        stop.set()  # a sweeper that fails leaves no process behind that looks alive
        beside.join()


def _sweep(stop: threading.Event) -> None:
    calm = Calm()
    while not stop.is_set():
        try:
            with database.own(sweeper_name()) as connection:
                _sweep_with(connection, stop, calm)
        except psycopg.Error as exc:
            log.warning("sweeping interrupted: %s", exc)
            stop.wait(SWEEP_SECONDS)
        calm.begin()


def _sweep_with(connection: database.Connection, stop: threading.Event, calm: Calm) -> None:
    """Until `stop`, pass over the due runs again and again; no lease is taken over until it is calm."""
    after: leases.Place | None = None
    while not stop.is_set():
        calm.look(leases.now(connection))
        until = leases.window(connection, after)
        count = sweep(connection, robs=calm.over, after=after, until=until)
        if count >= leases.SWEEP_LIMIT:
            # There are more, which wait for nothing but room in the broker.
            stop.wait(0 if dispatch.has_room() else SWEEP_SECONDS)
            continue
        after = until
        stop.wait(SWEEP_SECONDS if until is None else BREATH_SECONDS)


def _keep_up(stop: threading.Event) -> None:
    pause = 0.0
    while not stop.wait(pause):
        try:
            with database.own() as connection:
                done = upkeep(connection, stop)
        except psycopg.Error as exc:
            log.warning("upkeep did not begin; again in %g s: %s", AGAIN_SECONDS, exc)
            done = False
        pause = UPKEEP_SECONDS if done else AGAIN_SECONDS

"""Whatever is due gets another hint, and the journal's partitions are made ahead.

Any number of sweepers may run. After its own reconnect a sweeper waits one lease before it hints
again: the workers lost the same database and need that time to renew what they hold.
"""

import logging
import threading
import time

import psycopg
from django.db import close_old_connections

from runtime import database, dispatch, journal, leases, retention
from runtime.workers import FORGET, sweeper_name

log = logging.getLogger(__name__)

SWEEP_SECONDS = 1.0
UPKEEP_SECONDS = 3600.0


def sweep(connection: database.Connection) -> int:
    """Hint at every run that is due, at most 200 at a time. Returns how many."""
    runs = leases.due(connection)
    for one in runs:
        dispatch.hint(one.run, _queue(one))
    return len(runs)


def _queue(one: leases.Due) -> str:
    if one.isolated:
        return dispatch.ISOLATED
    return dispatch.NEW if one.new else dispatch.RESUMED


def upkeep(connection: database.Connection, stop: threading.Event) -> None:
    """What must happen now and then: partitions two months ahead, workers long gone forgotten, retention."""
    journal.make_partitions(connection)
    connection.execute(FORGET)
    retention.enforce(connection, stop)
    close_old_connections()


def run(stop: threading.Event) -> None:
    """Sweep every second until `stop`."""
    pause = 0.0
    while not stop.wait(pause):
        try:
            with database.own(sweeper_name()) as connection:
                _sweep_with(connection, stop)
        except psycopg.Error as exc:
            log.warning("sweeping interrupted: %s", exc)
        pause = leases.lease_seconds()


def _sweep_with(connection: database.Connection, stop: threading.Event) -> None:
    upkeep(connection, stop)
    kept_at = time.monotonic()
    while not stop.wait(SWEEP_SECONDS):
        sweep(connection)
        if time.monotonic() - kept_at > UPKEEP_SECONDS:
            upkeep(connection, stop)
            kept_at = time.monotonic()

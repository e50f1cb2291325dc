"""Runs the sweeper: one process with a loop for each scheduled job. Any number of sweepers may run.

The loops are independent. The sweeper sends hints for due runs every second and does the other jobs once an hour.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from django.db import close_old_connections

from runtime.store import pool
from runtime.store.pool import Connection
from runtime.store.tables import spent
from runtime.upkeep import due_runs, partitions, retention
from runtime.upkeep.alarm import Alarm

log = logging.getLogger(__name__)

HOUR = 3600.0
RETRY_SECONDS = 60.0  # between a failure and the next attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A job that runs at the start and every hour."""

    name: str
    duty: Callable[[Connection, threading.Event], object]

    def run(self, stop: threading.Event) -> None:
        """Run the job every hour until `stop`; retry it a minute after a failure."""
        alarm, pause = Alarm(self.name), 0.0
        while not stop.wait(pause):
            try:
                with pool.own() as connection:
                    self.duty(connection, stop)
                    alarm.done(connection)
                pause = HOUR
            except Exception as exc:  # of any kind: the next attempt may succeed
                alarm.failed(exc, again=RETRY_SECONDS)
                pause = RETRY_SECONDS
            close_old_connections()


def compare_ledger(connection: Connection, stop: threading.Event) -> None:
    """Log every used approval that the ledger has and the database lacks.

    Raises LedgerBroken, KeyMissing, OSError.
    """
    for line in spent.missing(connection):
        log.critical("Ledger: the database lacks this used approval: %s", line)


def run(stop: threading.Event) -> None:
    """Run every loop until `stop`. An error in the loop that sends hints ends all loops and the process."""
    hourly = (
        Loop(name="partitions", duty=partitions.maintain),
        Loop(name="retention", duty=retention.enforce),
        Loop(name="ledger", duty=compare_ledger),
    )
    threads = [threading.Thread(target=loop.run, args=[stop], name=loop.name) for loop in hourly]
    for thread in threads:
        thread.start()
    try:
        due_runs.run(stop)
    finally:
        stop.set()  # a process that cannot send hints must end, so that its supervisor restarts it
        for thread in threads:
            thread.join()

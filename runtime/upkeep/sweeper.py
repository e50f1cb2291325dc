"""The sweeper: one process with a loop for each duty of the upkeep. Any number of sweepers may run.

No loop waits for another or stops with it. Hints for due runs go out every second, and everything else is done once an
hour. A loop goes on at once while there is more to do.
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
AGAIN_SECONDS = 60.0  # to the next try after one that failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A duty that is done at the start and every hour."""

    name: str
    duty: Callable[[Connection, threading.Event], object]

    def run(self, stop: threading.Event) -> None:
        """Do it until `stop`; a minute after a failure again."""
        alarm, pause = Alarm(self.name), 0.0
        while not stop.wait(pause):
            try:
                with pool.own() as connection:
                    self.duty(connection, stop)
                    alarm.done(connection)
                pause = HOUR
            except Exception as exc:  # of any kind: the next time may be better
                alarm.failed(exc, again=AGAIN_SECONDS)
                pause = AGAIN_SECONDS
            close_old_connections()


def compare_ledger(connection: Connection, stop: threading.Event) -> None:
    """Raise an alarm for every approval that was used here and of which the database knows nothing any more.

    Raises LedgerBroken, KeyMissing, OSError.
    """
    for line in spent.missing(connection):
        log.critical("the ledger says what the database does not know of: %s", line)


def run(stop: threading.Event) -> None:
    """Run every loop until `stop`. A fault in the one that sends hints ends them all, and so the process."""
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
        stop.set()  # a process that sends no hints must not look alive
        for thread in threads:
            thread.join()

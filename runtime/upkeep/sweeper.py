"""Runs the sweeper: one process with a loop for each scheduled job. Any number of sweepers may run.

The loops are independent. The sweeper sends hints for due runs and messages to other programs and starts the runs of
schedules every second, shortens long journals and looks after trials of prompts every ten seconds, looks at requests,
mails people and counts for the overview every minute, and does the other jobs once an hour.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from django.db import connections

from runtime import broker
from runtime.ports import wiring
from runtime.store import pool
from runtime.store.pool import Connection
from runtime.store.tables import objects, used_approvals
from runtime.store.tables.jobs import KINDS
from runtime.upkeep import due_runs, journals, retention, rollups
from runtime.upkeep.alarm import Alarm

log = logging.getLogger(__name__)

MINUTE, HOUR = 60.0, 3600.0
RETRY_SECONDS = 60.0  # between a failure and the next attempt, unless the job runs more often
KEEP_SECONDS = 10.0  # a job that runs as often as this keeps its connections


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A job that runs at the start and every `seconds`, or sooner after a failure if that is more than a minute."""

    name: str
    duty: Callable[[Connection, threading.Event], object]
    seconds: float = HOUR

    def run(self, stop: threading.Event) -> None:
        """Run the job again and again until `stop`; retry it a minute after a failure."""
        alarm, pause = Alarm(self.name), 0.0
        while not stop.wait(pause):
            try:
                with pool.open_own() as connection:
                    self._round(connection, stop, alarm)
                    while self.seconds <= KEEP_SECONDS and not stop.wait(self.seconds):
                        self._round(connection, stop, alarm)
                pause = self.seconds
            except Exception as exc:  # of any kind: the next attempt may succeed
                pause = min(self.seconds, RETRY_SECONDS)
                alarm.log_failure(exc, again=pause)
            connections.close_all()  # or an ended thread would leave its connection open

    def _round(self, connection: Connection, stop: threading.Event, alarm: Alarm) -> None:
        started = time.monotonic()
        self.duty(connection, stop)
        alarm.record_success(connection, took=time.monotonic() - started)


def compare_ledger(connection: Connection, stop: threading.Event) -> None:
    """Log every used approval that the ledger has and the database lacks.

    Raises LedgerBroken, KeyMissing, OSError.
    """
    for line in used_approvals.list_missing_attempts(connection):
        log.critical("Ledger: the database lacks this used approval: %s", line)


def look_after_objects(connection: Connection, stop: threading.Event) -> None:
    """Ask the object store whether it can be read, and delete the objects of deleted rows.

    Does nothing without a store. Raises ObjectStoreDown.
    """
    store = wiring.find_object_store()
    if store is not None:
        store.check()
        objects.delete_dropped(connection, stop)


def send_messages(_: Connection, stop: threading.Event) -> None:
    """Send the due messages to people and programs."""
    wiring.resolve_approvals().send_messages(stop)


def look_ahead(_: Connection, stop: threading.Event) -> None:
    """Record escalations of pending requests, and mark those that too few people can decide."""
    wiring.resolve_approvals().look_ahead(stop)


def roll_up(connection: Connection, stop: threading.Event) -> None:
    """Count by day what runs used, how they ended and what people decided."""
    rollups.roll_up(connection, stop)
    wiring.resolve_approvals().count_decisions()


def run(stop: threading.Event, *extra_loops: Loop) -> None:
    """Run every loop and `extra_loops` until `stop`. An error in the loop that sends hints ends the process."""
    scheduled = (
        Loop(name="partitions", duty=journals.maintain_partitions),
        Loop(name="retention", duty=retention.enforce),
        Loop(name="archive", duty=retention.archive_old_runs),
        Loop(name="history", duty=journals.shorten_all, seconds=KEEP_SECONDS),
        Loop(name="trials", duty=look_after_jobs, seconds=KEEP_SECONDS),
        Loop(name="ledger", duty=compare_ledger),
        Loop(name="objects", duty=look_after_objects, seconds=MINUTE),
        Loop(name="requests", duty=look_ahead, seconds=MINUTE),
        Loop(name="outbox", duty=send_messages, seconds=1.0),
        Loop(name="rollups", duty=roll_up, seconds=MINUTE),
        *extra_loops,
    )
    threads = [threading.Thread(target=loop.run, args=[stop], name=loop.name) for loop in scheduled]
    for thread in threads:
        thread.start()
    try:
        due_runs.run(stop)
    finally:
        stop.set()  # a process that cannot send hints must end, so that its supervisor restarts it
        for thread in threads:
            thread.join()


def look_after_jobs(connection: Connection, stop: threading.Event) -> None:
    """Send jobs of workers again, end lost ones, and delete old ones.

    A job is sent again while its queue has room. Raise ConnectionError without a broker.
    """
    waiting = []
    for kind in KINDS:
        kind.end_lost(connection)
        kind.prune(connection)
        waiting += [(job, kind.name) for job in kind.waiting(connection)]
    if waiting and broker.JOBS in broker.list_queues_with_room():
        broker.send_all(waiting)

"""Starts the runs of schedules. Any number of sweepers may do it at once.

One transaction locks a schedule, decides about its due times, writes the row of each time, starts the runs, and sets
the next time. A sweeper that dies before the commit leaves all of that to the next one; after it, the rows of the times
exist. So each time is handled once. The time is that of Postgres.
"""

import logging
import threading
from datetime import datetime, timedelta
from uuid import UUID

from runtime.control.start import start
from runtime.control.transaction import atomic
from runtime.core.errors import NotJson
from runtime.core.machine.origin import merged
from runtime.errors import InvalidInput, RequestError, Tampered
from runtime.ports.access import Actor
from runtime.store import failpoints, pool
from runtime.store.pool import Connection
from runtime.store.tables.triggers import schedule_times, schedules
from runtime.store.tables.triggers.schedule_times import Kind, State
from runtime.store.tables.triggers.schedules import ScheduleRow
from runtime.triggers import plan
from runtime.triggers.definition import Overlap
from runtime.triggers.plan import Act, Busy, Step
from runtime.triggers.schedule import CurrentSchedule, Status, current

log = logging.getLogger(__name__)

AGAIN = timedelta(seconds=1)  # until the next look at times that wait
AFTER_ERROR = timedelta(seconds=60)
STARTS = 20  # waiting times that start in one transaction, if they may overlap
KIND = "ScheduleFired"  # of the failpoints

_STATES = {Act.START: State.WAITING, Act.WAIT: State.WAITING, Act.SKIP: State.SKIPPED}


def fire_due(connection: Connection, stop: threading.Event) -> None:
    """Handle each due schedule, one transaction for each."""
    if not schedules.any_due(connection, pool.now(connection)):
        return
    passed: list[UUID] = []
    while not stop.is_set() and _fire_next(passed):
        pass


def _fire_next(passed: list[UUID]) -> bool:
    """Handle the schedule that is due longest, without those that this round has passed. False if there is none."""
    with atomic() as connection:
        now = pool.now(connection)
        row = schedules.lock_due(connection, now, passed)
        if row is None:
            return False
        passed.append(row.id)
        try:
            with atomic():
                handle(connection, row, now)
        except Exception as exc:
            if pool.is_passing(exc):
                raise
            log.critical("Schedule %s: not handled, again in 60 s: %s", row.id, exc, exc_info=exc)
            schedules.write(connection, row.id, due_at=now + AFTER_ERROR)
        failpoints.hit("written", KIND, 0)
    failpoints.hit("committed", KIND, 0)
    return True


def handle(connection: Connection, row: ScheduleRow, now: datetime) -> None:
    """Start, queue or skip each due time of a locked schedule, and start times that waited. Raises KeyMissing."""
    try:
        one = current(connection, row)
    except Tampered as exc:
        if row.problem != str(exc):  # else it is logged
            log.critical("Schedule %s: starts nothing: %s", row.id, exc)
        schedules.write(connection, row.id, due_at=now + AFTER_ERROR, problem=str(exc))
        return
    next_at = row.next_at
    if one.status is Status.ACTIVE:
        if next_at is not None:
            next_at = _handle_due(connection, row.id, one, next_at, now)
        _start_waiting(connection, row.id, one)
    failpoints.hit("before", KIND, 0)
    set_next(connection, row.id, one, next_at, now)


def set_next(
    connection: Connection,
    schedule: UUID,
    one: CurrentSchedule,
    next_at: datetime | None,
    now: datetime,
) -> None:
    """Write the next time, when the sweeper looks again, and the status. The schedule verifies."""
    due_at = plan.due_at(schedule, one.definition, next_at)
    if schedule_times.open_times(connection, schedule).waiting:
        due_at = min(due_at or now + AGAIN, now + AGAIN)
    over = one.status is Status.ENDED or next_at is None
    schedules.write(
        connection,
        schedule,
        next_at=None if one.status is Status.ENDED else next_at,
        due_at=due_at if one.status is Status.ACTIVE else None,
        problem="",
        state=Status.ENDED if over else one.status,
    )


def start_run(
    connection: Connection,
    schedule: UUID,
    one: CurrentSchedule,
    at: datetime,
    by: str | None = None,
) -> UUID:
    """Start the run of a time, and write it to the row of the time. Raises as control.start.start.

    `by` is the person of a manual time or a back-fill, who does not decide in the run either.
    """
    run = start(
        agent=one.definition.agent,
        input=one.definition.input_at(at),
        business_key=business_key(schedule, one, at),
        actor=Actor(person=one.owner),
        makers=merged(one.makers, [by or ""]),
        thread=one.definition.thread or None,
    ).run
    schedule_times.write(connection, schedule, at, state=State.STARTED, run=run)
    return run


def business_key(schedule: UUID, one: CurrentSchedule, at: datetime) -> str:
    """Return the key of the run of a time. People see it as the title of the run."""
    return f"{one.definition.name} {at.isoformat()} ({schedule.hex[-12:]})"


def _handle_due(
    connection: Connection, schedule: UUID, one: CurrentSchedule, next_at: datetime, now: datetime
) -> datetime | None:
    """Handle the due times, and return the next one."""
    found = schedule_times.open_times(connection, schedule)
    busy = Busy(running=found.running > 0, own=found.own_running > 0, waiting=found.own_waiting)
    planned = plan.due(schedule, one.definition, next_at, now, busy)
    for step in planned.steps:
        _apply(connection, schedule, one, step)
    return planned.next_at


def _apply(connection: Connection, schedule: UUID, one: CurrentSchedule, step: Step) -> None:
    """Write the row of a due time, and start its run if the plan says so."""
    added = schedule_times.insert(
        connection,
        schedule,
        step.at,
        kind=Kind.SCHEDULED,
        state=_STATES[step.act],
        reason=step.reason,
    )
    if added and step.act is Act.START:
        _try_to_start(connection, schedule, one, step.at)


def _start_waiting(connection: Connection, schedule: UUID, one: CurrentSchedule) -> None:
    """Start the next time that waits if every run has ended, or several if they may overlap."""
    overlaps = one.definition.overlap is Overlap.ALLOW
    found = schedule_times.open_times(connection, schedule)
    if not found.waiting or (found.running and not overlaps):
        return
    for time in schedule_times.waiting(connection, schedule, STARTS if overlaps else 1):
        _try_to_start(connection, schedule, one, time.at, time.by)


def _try_to_start(
    connection: Connection,
    schedule: UUID,
    one: CurrentSchedule,
    at: datetime,
    by: str | None = None,
) -> None:
    """Start the run of a time, or write why it cannot be started."""
    try:
        start_run(connection, schedule, one, at, by)
    except (RequestError, NotJson) as exc:
        reason = exc.all_of_it if isinstance(exc, InvalidInput) else str(exc)
        log.warning("Schedule %s: no run at %s: %s", schedule, at.isoformat(), reason)
        schedule_times.write(connection, schedule, at, state=State.FAILED, reason=reason)

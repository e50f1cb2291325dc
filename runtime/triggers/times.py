"""Starts the runs of schedules at their times.

The transaction that locks a schedule decides about its due times, writes the row of each time, starts the runs, and
sets the next time. So each time is handled once.
"""

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from uuid import UUID

from runtime.control.start import start
from runtime.core.run.continuation import merge_people
from runtime.core.values.errors import NotJson
from runtime.errors import InvalidInput, RequestError
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.store.pool import Connection
from runtime.store.tables import occurrences, trigger_rows
from runtime.store.tables.occurrences import OccurrenceKind, OccurrenceState
from runtime.triggers import schedule_definition
from runtime.triggers.schedule_definition import Busy, Overlap, ScheduleDefinition, TimeAct
from runtime.triggers.trigger import SignedTrigger, TriggerStatus

log = logging.getLogger(__name__)

Schedule = SignedTrigger[ScheduleDefinition]

AGAIN = timedelta(seconds=1)  # until the next look at times that wait
STARTS = 20  # waiting times that start in one transaction, if they may overlap
FAILPOINT = "ScheduleFired"
CHANGED = "the schedule was changed"  # of a time that came before

_STATES = {
    TimeAct.START: OccurrenceState.WAITING,
    TimeAct.WAIT: OccurrenceState.WAITING,
    TimeAct.SKIP: OccurrenceState.SKIPPED,
}


def check(sent: Mapping[str, object], actor: Actor, now: datetime) -> ScheduleDefinition:
    """Return the definition, with an input that the agent accepts. Raise UnknownAgent, or InvalidInput."""
    definition = schedule_definition.read(sent, now)
    first = definition.calendar.find_first_after(now)
    assert first is not None  # `read` refuses a definition without times
    wiring.resolve_catalogue().check_input(definition.agent, definition.fill_input(first))
    return definition


def handle(connection: Connection, schedule: Schedule, now: datetime) -> bool:
    """Start, queue or skip each due time of a locked schedule, and start times that waited."""
    next_at = schedule.row.next_at
    if schedule.status is TriggerStatus.ACTIVE:
        if next_at is not None:
            open_times = occurrences.open_times(connection, schedule.id)
            busy = Busy(
                running=open_times.running > 0,
                own_running=open_times.own_running > 0,
                waiting=open_times.own_waiting,
            )
            due = schedule_definition.plan_due(schedule.id, schedule.definition, next_at, now, busy)
            for time in due.times:
                added = occurrences.add_time(
                    connection,
                    schedule.id,
                    time.at,
                    kind=OccurrenceKind.SCHEDULED,
                    state=_STATES[time.act],
                    reason=time.reason,
                )
                if added and time.act is TimeAct.START:
                    _try_to_start(connection, schedule, time.at)
            next_at = due.next_at
        _start_waiting(connection, schedule)
    set_next(connection, schedule, next_at, now)
    return False


def catch_up(connection: Connection, schedule: Schedule, now: datetime) -> None:
    """Handle the due times before a person changes the schedule."""
    if schedule.row.due_at is not None and schedule.row.due_at <= now:
        handle(connection, schedule, now)


def apply_act(
    connection: Connection, before: Schedule | None, after: Schedule, now: datetime
) -> None:
    """Set the next time after an act that made or changed the schedule.

    It may have come before without being handled, for example for its jitter, if it is still a time after the act. A
    time that came and is none any more is skipped.
    """
    next_at = None
    is_active = after.status is TriggerStatus.ACTIVE
    if before is not None and before.status is TriggerStatus.ACTIVE:
        came_at = read_next(connection, before)
        calendar, limit = before.definition.calendar, schedule_definition.MAX_MISSED
        for at in () if came_at is None else calendar.list_newest_times(came_at, now, limit):
            if is_active and after.definition.calendar.has(at):
                next_at = at
                break
            occurrences.add_time(
                connection,
                before.id,
                at,
                kind=OccurrenceKind.SCHEDULED,
                state=OccurrenceState.SKIPPED,
                reason=CHANGED,
            )
    set_next(connection, after, next_at or after.definition.calendar.find_first_after(now), now)


def set_next(
    connection: Connection, schedule: Schedule, next_at: datetime | None, now: datetime
) -> None:
    """Write the next time, when the sweeper looks again, and the status. The schedule verifies."""
    due_at = schedule_definition.start_time(schedule.id, schedule.definition, next_at)
    if occurrences.open_times(connection, schedule.id).waiting:
        due_at = min(due_at or now + AGAIN, now + AGAIN)
    is_over = schedule.status is TriggerStatus.ENDED or next_at is None
    trigger_rows.write(
        connection,
        schedule.id,
        next_at=None if schedule.status is TriggerStatus.ENDED else next_at,
        due_at=due_at if schedule.status is TriggerStatus.ACTIVE else None,
        not_before=None,
        problem="",
        state=TriggerStatus.ENDED if is_over else schedule.status,
    )


def read_next(connection: Connection, schedule: Schedule) -> datetime | None:
    """Read the next time again: handling the due times may have moved it."""
    row = trigger_rows.read(connection, schedule.id)
    assert row is not None  # it is locked
    return row.next_at


def start_run(
    connection: Connection, schedule: Schedule, at: datetime, by: str | None = None
) -> UUID:
    """Start the run of a time, and write it to the row of the time. Raises as control.start.start.

    `by` is the person of a manual time or a back-fill, who does not decide in the run either.
    """
    definition = schedule.definition
    run = start(
        agent=definition.agent,
        input=definition.fill_input(at),
        # People see it as the title of the run.
        business_key=f"{definition.name} {at.isoformat()} ({schedule.id.hex[-12:]})",
        actor=Actor(person=schedule.owner),
        makers=merge_people(schedule.makers, [by or ""]),
        thread=definition.thread or None,
    ).run
    _write(connection, schedule, at, state=OccurrenceState.STARTED, run=run, reason="")
    return run


def _start_waiting(connection: Connection, schedule: Schedule) -> None:
    """Start the next time that waits if every run has ended, or several if they may overlap."""
    may_overlap = schedule.definition.overlap is Overlap.ALLOW
    open_times = occurrences.open_times(connection, schedule.id)
    if not open_times.waiting or (open_times.running and not may_overlap):
        return
    limit = STARTS if may_overlap else 1
    for time in occurrences.list_waiting_times(connection, schedule.id, limit):
        _try_to_start(connection, schedule, time.at, time.by)


def _try_to_start(
    connection: Connection, schedule: Schedule, at: datetime, by: str | None = None
) -> None:
    """Start the run of a time, or write why it cannot be started."""
    try:
        start_run(connection, schedule, at, by)
    except (RequestError, NotJson) as exc:
        reason = exc.all_of_it if isinstance(exc, InvalidInput) else str(exc)
        log.warning("Schedule %s: no run at %s: %s", schedule.id, at.isoformat(), reason)
        _write(connection, schedule, at, state=OccurrenceState.FAILED, reason=reason)


def _write(connection: Connection, schedule: Schedule, at: datetime, **columns: object) -> None:
    occurrences.write(connection, schedule.id, occurrences.compute_number(at), **columns)

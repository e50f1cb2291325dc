"""What people do with the times of a schedule: run it now, and back-fill a range of past times."""

from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from runtime.errors import InvalidInput
from runtime.ports.access import Actor
from runtime.store.tables import occurrences
from runtime.store.tables.occurrences import OccurrenceKind, OccurrenceState
from runtime.store.tables.triggers import TriggerKind
from runtime.triggers import times, trigger
from runtime.triggers.changes import LockedTrigger, lock
from runtime.triggers.schedule_definition import read_time

MAX_BACKFILL = 1_000  # times of a back-fill, with those that still wait
OLDEST_CLICK = timedelta(days=1)  # of a page with "Run now"


def run_now(*, id: UUID, actor: Actor, at: object = None) -> UUID:
    """Start a run at once, also beside another one, and while the schedule is paused.

    The same time `at` starts one run. Raise as `change`, and as control.start.start for the owner.
    """
    with lock(TriggerKind.SCHEDULE, id, actor) as locked:
        time = locked.now if at is None else read_time(at, "at", "UTC", in_seconds=False)
        if not locked.now - OLDEST_CLICK <= time <= locked.now + OLDEST_CLICK:
            raise InvalidInput("at", "is not today; load the page again")
        row = occurrences.read(locked.connection, id, occurrences.number_of(time))
        if row is not None and row.run is not None:
            return row.run
        _add(locked, time, OccurrenceKind.MANUAL, actor)
        detail = {"at": time.isoformat()}
        trigger.record(locked.connection, locked.trigger, "run now", actor, detail)
        return times.start_run(locked.connection, locked.trigger, time, actor.person)


def backfill(*, id: UUID, first: object, until: object, actor: Actor) -> int:
    """Start a run for each past time of a range that the schedule has no row of. Return how many.

    They start one after another, unless runs may overlap. Raise as `change`.
    """
    with lock(TriggerKind.SCHEDULE, id, actor) as locked:
        calendar, zone = locked.trigger.definition.calendar, locked.trigger.definition.zone
        begin = read_time(first, "first", zone)
        last = read_time(until, "until", zone)
        if last < begin:
            raise InvalidInput("until", "must not be before the beginning of the range")
        if last > locked.now:
            raise InvalidInput("until", "must not be in the future")
        waiting = occurrences.open_times(locked.connection, id).waiting
        past = calendar.extended(begin).between(begin, last, MAX_BACKFILL + 1)
        if len(past) + waiting > MAX_BACKFILL:
            raise InvalidInput(
                "until", f"gives more than {MAX_BACKFILL} times, with those that wait"
            )
        count = sum(_add(locked, at, OccurrenceKind.BACKFILL, actor) for at in past)
        if not count:
            raise InvalidInput("until", "gives no time that the schedule has not had")
        detail: dict[str, str | int] = {
            "first": begin.isoformat(),
            "until": last.isoformat(),
            "times": count,
        }
        after = replace(locked.trigger, makers=(*locked.trigger.makers, actor.person))
        trigger.record(locked.connection, after, "back-filled", actor, detail)
        next_at = times.read_next(locked.connection, after)
        times.set_next(locked.connection, after, next_at, locked.now)
    return count


def _add(locked: LockedTrigger, at: datetime, kind: OccurrenceKind, actor: Actor) -> bool:
    return occurrences.add_time(
        locked.connection,
        locked.trigger.id,
        at,
        kind=kind,
        state=OccurrenceState.WAITING,
        by=actor.person,
        token=actor.token,
    )

"""What people do with schedules. Each act first handles the times that are due, and is signed and kept.

The owner of a schedule and admins may change it, with the right to start runs. Others do not see it.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID, uuid4

from runtime.control.transaction import atomic
from runtime.errors import InvalidInput, NoSuchSchedule, ScheduleEnded
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.store import pool
from runtime.store.pool import Connection
from runtime.store.tables.triggers import schedule_times, schedules
from runtime.store.tables.triggers.schedule_times import Kind, State
from runtime.store.tables.triggers.schedules import ScheduleRow
from runtime.triggers import definition, firing, plan, rights, schedule
from runtime.triggers.definition import Definition
from runtime.triggers.schedule import CurrentSchedule, Status

SCOPE = "runs:start"
MAX_BACKFILL = 1_000  # times of a back-fill, with those that still wait
OLDEST_CLICK = timedelta(days=1)  # of a page with "Run now"
CHANGED = "the schedule was changed"  # of a time that came before


@dataclass(frozen=True, slots=True, kw_only=True)
class _Locked:
    connection: Connection
    row: ScheduleRow
    one: CurrentSchedule
    now: datetime


def create(*, sent: Mapping[str, object], actor: Actor, form: UUID | None = None) -> UUID:
    """Make a schedule that the actor owns, or return the one that the same `form` made.

    Raise Forbidden, UnknownAgent, or InvalidInput naming the field.
    """
    wiring.access().require(actor, SCOPE)
    with atomic() as connection:
        now = pool.now(connection)
        defined = _checked(sent, now)
        one = CurrentSchedule(
            owner=actor.person, makers=(actor.person,), status=Status.ACTIVE, definition=defined
        )
        made = form or uuid4()
        said = {"name": defined.name, "agent": defined.agent, "owner": actor.person}
        if not schedules.insert(connection, made, **said):
            readable(connection, made, actor)  # another person's form is not theirs
            return made
        schedule.record(connection, made, "made", one, actor)
        firing.set_next(connection, made, one, defined.calendar.first_after(now), now)
    return made


def change(*, id: UUID, sent: Mapping[str, object], actor: Actor) -> None:
    """Replace the definition. Times that wait use the new one.

    Raise NoSuchSchedule, Forbidden, ScheduleEnded, UnknownAgent, or InvalidInput naming the field.
    """
    with _locked(id, actor) as held:
        defined = _checked(sent, held.now)
        _record(held, "changed", actor, defined=defined)
        schedules.write(held.connection, id, name=defined.name, agent=defined.agent)


def pause(*, id: UUID, actor: Actor) -> None:
    """Pause a schedule: its times start no run until it is resumed. Raise as `change`."""
    with _locked(id, actor) as held:
        _record(held, "paused", actor, status=Status.PAUSED)


def resume(*, id: UUID, actor: Actor) -> None:
    """Start runs again, from the next time on. Raise as `change`."""
    with _locked(id, actor) as held:
        _record(held, "resumed", actor, status=Status.ACTIVE)


def end(*, id: UUID, actor: Actor) -> None:
    """End a schedule for good; times that wait are skipped. Its runs continue. Raise as `change`."""
    with _locked(id, actor) as held:
        schedule_times.skip_waiting(held.connection, id, "the schedule was ended")
        _record(held, "ended", actor, status=Status.ENDED)


def run_now(*, id: UUID, actor: Actor, at: object = None) -> UUID:
    """Start a run at once, also beside another one, and while the schedule is paused.

    The same time `at` starts one run. Raise as `change`, and as control.start.start for the owner.
    """
    with _locked(id, actor) as held:
        time = held.now if at is None else definition.moment(at, "at", "UTC", whole=False)
        if not held.now - OLDEST_CLICK <= time <= held.now + OLDEST_CLICK:
            raise InvalidInput("at", "is not today; load the page again")
        known = schedule_times.read(held.connection, id, time)
        if known is not None and known.run is not None:
            return known.run
        schedule_times.insert(
            held.connection,
            id,
            time,
            kind=Kind.MANUAL,
            state=State.WAITING,
            by=actor.person,
            token=actor.token,
        )
        detail = {"at": time.isoformat()}
        schedule.record(held.connection, id, "run now", held.one, actor, detail)
        return firing.start_run(held.connection, id, held.one, time, actor.person)


def backfill(*, id: UUID, first: object, until: object, actor: Actor) -> int:
    """Start a run for each past time of a range that the schedule has no row of. Return how many.

    They start one after another, unless runs may overlap. Raise as `change`.
    """
    with _locked(id, actor) as held:
        defined = held.one.definition
        begin = definition.moment(first, "first", defined.zone)
        last = definition.moment(until, "until", defined.zone)
        if last < begin:
            raise InvalidInput("until", "must not be before the beginning of the range")
        if last > held.now:
            raise InvalidInput("until", "must not be in the future")
        waiting = schedule_times.open_times(held.connection, id).waiting
        times = defined.calendar.extended(begin).between(begin, last, MAX_BACKFILL + 1)
        if len(times) + waiting > MAX_BACKFILL:
            raise InvalidInput(
                "until", f"gives more than {MAX_BACKFILL} times, with those that wait"
            )
        added = [at for at in times if _add(held, at, actor)]
        if not added:
            raise InvalidInput("until", "gives no time that the schedule has not had")
        detail: dict[str, str | int] = {
            "first": begin.isoformat(),
            "until": last.isoformat(),
            "times": len(added),
        }
        after = replace(held.one, makers=(*held.one.makers, actor.person))
        schedule.record(held.connection, id, "back-filled", after, actor, detail)
        firing.set_next(held.connection, id, after, _next_at(held), held.now)
    return len(added)


def readable(connection: Connection, id: UUID, actor: Actor) -> ScheduleRow:
    """Return a schedule that the actor may read: their own, or any as an admin. Raise NoSuchSchedule."""
    row = schedules.read(connection, id)
    if row is None or not rights.may_read(row.owner, actor):
        raise NoSuchSchedule
    return row


@contextmanager
def _locked(id: UUID, actor: Actor) -> Iterator[_Locked]:
    """Lock a schedule that the actor may change, as for triggers, and handle the times that are due."""
    wiring.access().require(actor, SCOPE)
    with atomic() as connection:
        row = schedules.lock(connection, id)
        if row is None or not rights.may_read(row.owner, actor):
            raise NoSuchSchedule
        one = schedule.current(connection, row)
        if one.status is Status.ENDED:
            raise ScheduleEnded
        now = pool.now(connection)
        if row.due_at is not None and row.due_at <= now:
            firing.handle(connection, row, now)
        yield _Locked(connection=connection, row=row, one=one, now=now)


def _record(
    held: _Locked,
    act: str,
    actor: Actor,
    *,
    defined: Definition | None = None,
    status: Status | None = None,
) -> None:
    """Record an act that changes the schedule, and set its next time. The actor becomes a maker."""
    after = replace(
        held.one,
        makers=(*held.one.makers, actor.person),
        definition=defined or held.one.definition,
        status=status or held.one.status,
    )
    schedule.record(held.connection, held.row.id, act, after, actor)
    next_at = _first_due(held, after) or after.definition.calendar.first_after(held.now)
    firing.set_next(held.connection, held.row.id, after, next_at, held.now)


def _first_due(held: _Locked, after: CurrentSchedule) -> datetime | None:
    """Return the first time that came and is not handled, for example for its jitter, and is still one after the act.

    A time that came and is none any more is skipped.
    """
    next_at = _next_at(held)
    if held.one.status is not Status.ACTIVE or next_at is None:
        return None
    for at in held.one.definition.calendar.newest(next_at, held.now, plan.MAX_MISSED):
        if after.status is Status.ACTIVE and after.definition.calendar.has(at):
            return at
        schedule_times.insert(
            held.connection,
            held.row.id,
            at,
            kind=Kind.SCHEDULED,
            state=State.SKIPPED,
            reason=CHANGED,
        )
    return None


def _next_at(held: _Locked) -> datetime | None:
    """Read the next time again: handling the due times may have moved it."""
    row = schedules.read(held.connection, held.row.id)
    assert row is not None  # it is locked
    return row.next_at


def _add(held: _Locked, at: datetime, actor: Actor) -> bool:
    return schedule_times.insert(
        held.connection,
        held.row.id,
        at,
        kind=Kind.BACKFILL,
        state=State.WAITING,
        by=actor.person,
        token=actor.token,
    )


def _checked(sent: Mapping[str, object], now: datetime) -> Definition:
    """Return the definition, with an input that the agent accepts."""
    defined = definition.read(sent, now)
    first = defined.calendar.first_after(now)
    assert first is not None  # `read` refuses a definition without times
    wiring.catalogue().check_input(defined.agent, defined.input_at(first))
    return defined

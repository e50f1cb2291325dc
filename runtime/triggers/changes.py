"""What people do with triggers of all kinds. Each act is signed and kept.

The owner of a trigger and admins may change it, with the right to start runs. Others do not see it.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from runtime import errors
from runtime.control.user_actions import open_transaction
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.store import pool
from runtime.store.tables import occurrences, trigger_rows
from runtime.store.tables.occurrences import OccurrenceKind, OccurrenceState
from runtime.store.tables.trigger_rows import TriggerKind, TriggerRow
from runtime.triggers import times, trigger
from runtime.triggers.firing import STARTERS
from runtime.triggers.schedule_definition import read_time
from runtime.triggers.trigger import SealedWebhook, SignedTrigger, TriggerStatus

SCOPE = "runs:start"

RETRIED = (
    OccurrenceState.SKIPPED,
    OccurrenceState.FAILED,
)  # states of events that a person may retry
_MISSING = {TriggerKind.SCHEDULE: errors.NoSuchSchedule, TriggerKind.EVENT: errors.NoSuchTrigger}
_ENDED = {TriggerKind.SCHEDULE: errors.ScheduleEnded, TriggerKind.EVENT: errors.TriggerEnded}
MAX_BACKFILL = 1_000  # times of a back-fill, with those that still wait
OLDEST_CLICK = timedelta(days=1)  # of a page with "Run now"


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedTrigger:
    """A trigger that is locked until the transaction ends."""

    connection: pool.Connection
    trigger: SignedTrigger[Any]
    now: datetime


def create(
    kind: TriggerKind, *, sent: Mapping[str, object], actor: Actor, form: UUID | None = None
) -> UUID:
    """Make a trigger that the actor owns, or return the one that the same `form` made.

    Raise Forbidden, UnknownAgent, or InvalidInput naming the field.
    """
    wiring.resolve_access().require(actor, SCOPE)
    with open_transaction() as connection:
        now = pool.read_clock(connection)
        definition = STARTERS[kind].check(sent, actor, now)
        new_id = form or uuid4()
        columns = _collect_columns(definition)
        if not trigger_rows.insert(connection, new_id, kind=kind, owner=actor.person, **columns):
            read_row(connection, kind, new_id, actor)  # another person's form is not theirs
            return new_id
        created = SignedTrigger(
            row=read_row(connection, kind, new_id, actor),
            makers=(actor.person,),
            status=TriggerStatus.ACTIVE,
            definition=definition,
        )
        trigger.record_act(connection, created, "made", actor)
        STARTERS[kind].apply_act(connection, None, created, now)
    return new_id


def change(kind: TriggerKind, *, id: UUID, sent: Mapping[str, object], actor: Actor) -> None:
    """Replace the definition. Times and events that wait use the new one, but not its filter and key.

    Raise NoSuchSchedule or NoSuchTrigger, Forbidden, ScheduleEnded or TriggerEnded, UnknownAgent, or InvalidInput
    naming the field.
    """
    with lock(kind, id, actor) as locked:
        definition = STARTERS[kind].check(sent, actor, locked.now)
        record_act(locked, "changed", actor, definition=definition)
        trigger_rows.write(locked.connection, id, **_collect_columns(definition))


def pause(kind: TriggerKind, *, id: UUID, actor: Actor) -> None:
    """Pause a trigger: it gets no times and events, and starts no run until it is resumed. Raise as `change`."""
    with lock(kind, id, actor) as locked:
        record_act(locked, "paused", actor, status=TriggerStatus.PAUSED)


def resume(kind: TriggerKind, *, id: UUID, actor: Actor) -> None:
    """Start runs again, from the next time or event on, and of those that wait. Raise as `change`."""
    with lock(kind, id, actor) as locked:
        record_act(locked, "resumed", actor, status=TriggerStatus.ACTIVE)


def end_trigger(kind: TriggerKind, *, id: UUID, actor: Actor) -> None:
    """End a trigger for good; what waits is skipped. Its runs continue. Raise as `change`."""
    with lock(kind, id, actor) as locked:
        reason = f"the {kind.noun} was ended"
        occurrences.skip_waiting(locked.connection, id, reason)
        record_act(locked, "ended", actor, status=TriggerStatus.ENDED)


def retry(*, id: UUID, number: int, actor: Actor) -> None:
    """Handle an event again that started no run, by the current definition. Raise as `change`, or NotRetried."""
    with lock(TriggerKind.EVENT, id, actor) as locked:
        row = occurrences.read(locked.connection, id, number)
        if row is None or row.run is not None or row.state not in RETRIED:
            raise errors.NotRetried
        occurrences.write(locked.connection, id, number, state=OccurrenceState.NEW, reason="")
        record_act(locked, "retried", actor, detail={"event": row.id or ""})


def read_row(connection: pool.Connection, kind: TriggerKind, id: UUID, actor: Actor) -> TriggerRow:
    """Return a trigger that the actor may read: their own, or any as an admin.

    Raise NoSuchSchedule or NoSuchTrigger.
    """
    return _require_readable(kind, trigger_rows.read(connection, id), actor)


@contextmanager
def lock(kind: TriggerKind, id: UUID, actor: Actor) -> Iterator[LockedTrigger]:
    """Lock a trigger that the actor may change: a person who may start runs and read the trigger.

    Raise NoSuchSchedule or NoSuchTrigger, Forbidden, ScheduleEnded or TriggerEnded, Tampered, KeyMissing.
    """
    wiring.resolve_access().require(actor, SCOPE)
    with open_transaction() as connection:
        row = _require_readable(kind, trigger_rows.lock(connection, id), actor)
        signed = trigger.read_signed(connection, row)
        if signed.status is TriggerStatus.ENDED:
            raise _ENDED[kind]
        now = pool.read_clock(connection)
        STARTERS[kind].catch_up(connection, signed, now)
        yield LockedTrigger(connection=connection, trigger=signed, now=now)


def record_act(
    locked: LockedTrigger,
    act: str,
    actor: Actor,
    *,
    definition: Any = None,
    status: TriggerStatus | None = None,
    webhook: SealedWebhook | None = None,
    detail: Mapping[str, str | int] | None = None,
) -> None:
    """Record an act that changes the trigger, and have the sweeper look at it. The actor becomes a maker."""
    before = locked.trigger
    after = replace(
        before,
        makers=(*before.makers, actor.person),
        definition=definition or before.definition,
        status=status or before.status,
        webhook=webhook or before.webhook,
    )
    trigger.record_act(locked.connection, after, act, actor, detail)
    STARTERS[before.row.kind].apply_act(locked.connection, before, after, locked.now)


def may_read(owner: str, actor: Actor) -> bool:
    """Tell whether the actor may read what this person owns."""
    return owner == actor.person or wiring.resolve_access().may_read_continuations(actor)


def run_now(*, id: UUID, actor: Actor, at: object = None) -> UUID:
    """Start a run at once, also beside another one, and while the schedule is paused.

    The same time `at` starts one run. Raise as `change`, and as control.start.start for the owner.
    """
    with lock(TriggerKind.SCHEDULE, id, actor) as locked:
        time = locked.now if at is None else read_time(at, "at", "UTC", in_seconds=False)
        if not locked.now - OLDEST_CLICK <= time <= locked.now + OLDEST_CLICK:
            raise errors.InvalidInput("at", "is not today; load the page again")
        row = occurrences.read(locked.connection, id, occurrences.compute_number(time))
        if row is not None and row.run is not None:
            return row.run
        _add_time(locked, time, OccurrenceKind.MANUAL, actor)
        detail = {"at": time.isoformat()}
        trigger.record_act(locked.connection, locked.trigger, "run now", actor, detail)
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
            raise errors.InvalidInput("until", "must not be before the beginning of the range")
        if last > locked.now:
            raise errors.InvalidInput("until", "must not be in the future")
        waiting = occurrences.open_times(locked.connection, id).waiting
        past = calendar.extend_start(begin).list_times_between(begin, last, MAX_BACKFILL + 1)
        if len(past) + waiting > MAX_BACKFILL:
            raise errors.InvalidInput(
                "until", f"gives more than {MAX_BACKFILL} times, with those that wait"
            )
        count = sum(_add_time(locked, at, OccurrenceKind.BACKFILL, actor) for at in past)
        if not count:
            raise errors.InvalidInput("until", "gives no time that the schedule has not had")
        detail: dict[str, str | int] = {
            "first": begin.isoformat(),
            "until": last.isoformat(),
            "times": count,
        }
        after = replace(locked.trigger, makers=(*locked.trigger.makers, actor.person))
        trigger.record_act(locked.connection, after, "back-filled", actor, detail)
        next_at = times.read_next(locked.connection, after)
        times.set_next(locked.connection, after, next_at, locked.now)
    return count


def _require_readable(kind: TriggerKind, row: TriggerRow | None, actor: Actor) -> TriggerRow:
    if row is None or row.kind is not kind or not may_read(row.owner, actor):
        raise _MISSING[kind]
    return row


def _collect_columns(definition: Any) -> dict[str, str]:
    """Return the columns of the row that the definition says."""
    event = getattr(definition, "event", "")
    return {"name": definition.name, "agent": definition.agent, "event": event}


def _add_time(locked: LockedTrigger, at: datetime, kind: OccurrenceKind, actor: Actor) -> bool:
    return occurrences.add_time(
        locked.connection,
        locked.trigger.id,
        at,
        kind=kind,
        state=OccurrenceState.WAITING,
        by=actor.person,
        token=actor.token,
    )

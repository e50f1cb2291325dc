"""Starts the runs of triggers. Any number of sweepers may do it at once.

The transaction that receives an event writes a new row for each trigger. Here one transaction locks a trigger, judges
its new events, and starts the runs of those whose turn it is. A sweeper that dies before the commit leaves all of that
to the next one; after it, the rows say what became of the events. So each event is handled once. The time is that of
Postgres.
"""

import logging
import threading
from dataclasses import replace
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
from runtime.store.tables.triggers import trigger_events, triggers
from runtime.store.tables.triggers.trigger_events import State, WaitingEvent
from runtime.store.tables.triggers.triggers import TriggerRow
from runtime.triggers.events import mapping, plan, waking
from runtime.triggers.events.trigger import CurrentTrigger, current
from runtime.triggers.events.trigger import event as event_of
from runtime.triggers.schedule import Status

log = logging.getLogger(__name__)

AFTER_ERROR = timedelta(seconds=60)
JUDGED = 200  # new events that one transaction judges
STARTS = 50  # runs that one transaction starts
MAX_WAITING = 10_000  # events of one trigger that wait
KIND = "EventFired"  # of the failpoints

FILTERED = "the filter does not hold"
FOUND = "a run with this business key was there"
FULL = f"{MAX_WAITING} events waited already"


def fire_due(_: Connection, stop: threading.Event) -> None:
    """Handle each trigger with something to do, one transaction for each, and again while there is more."""
    passed: list[UUID] = []
    while not stop.is_set() and _fire_next(passed):
        pass


def _fire_next(passed: list[UUID]) -> bool:
    """Handle a trigger that this round has not passed. Return False if there is none."""
    with atomic() as connection:
        now = pool.now(connection)
        row = triggers.lock_due(connection, now, passed)
        if row is None:
            return False
        try:
            with atomic():
                more = handle(connection, row, now)
        except Exception as exc:
            if pool.is_passing(exc):
                raise
            log.critical("Trigger %s: not handled, again in 60 s: %s", row.id, exc, exc_info=exc)
            triggers.write(connection, row.id, not_before=now + AFTER_ERROR)
            more = False
        if not more:
            passed.append(row.id)
        failpoints.hit("written", KIND, 0)
    failpoints.hit("committed", KIND, 0)
    return True


def handle(connection: Connection, row: TriggerRow, now: datetime) -> bool:
    """Filter new events of a locked trigger, and start runs. Return whether there is more. Raises KeyMissing."""
    try:
        one = current(connection, row)
    except Tampered as exc:
        if row.problem != str(exc):  # else it is logged
            log.critical("Trigger %s: starts nothing: %s", row.id, exc)
        again = now + AFTER_ERROR
        triggers.write(connection, row.id, due_at=again, not_before=again, problem=str(exc))
        return False
    if one.status is not Status.ACTIVE:
        triggers.write(connection, row.id, state=one.status, due_at=None, problem="")
        return False
    judged = trigger_events.new(connection, row.id, JUDGED)
    room = MAX_WAITING - trigger_events.waiting_count(connection, row.id) if judged else 0
    for number in judged:
        room -= _judge(connection, row.id, one, number, room=room)
    more = len(judged) == JUDGED
    if one.definition.wakes:
        more |= waking.wake_all(connection, row.id, one, now)
    planned = _plan(connection, row.id, one, now)
    for event in planned.start[:STARTS]:
        _try_to_start(connection, row.id, one, event, now)
    failpoints.hit("before", KIND, 0)
    more |= len(planned.start) >= STARTS
    due_at = now if planned.start else planned.next_at
    triggers.write(connection, row.id, due_at=due_at, not_before=None, problem="")
    return more


def _judge(
    connection: Connection, trigger: UUID, whole: CurrentTrigger, number: int, *, room: int
) -> bool:
    """Apply the filter to a new event, and find its key. Return whether it waits now."""

    def write(state: State, **columns: str) -> bool:
        trigger_events.write(connection, trigger, number, state=state, **columns)
        return state is State.WAITING

    one = whole.definition
    try:
        received = event_of(connection, trigger, whole, number)
        if one.wakes and received.by is not None:
            return write(State.SKIPPED, reason=waking.SENT)
        facts = received.facts
        if not mapping.passes(one.filter, facts):
            return write(State.SKIPPED, reason=FILTERED)
        key = one.key_of(facts)
    except (InvalidInput, Tampered) as exc:
        return write(State.FAILED, reason=_reason(exc))
    return write(State.WAITING, key=key) if room > 0 else write(State.SKIPPED, reason=FULL)


def _plan(connection: Connection, trigger: UUID, whole: CurrentTrigger, now: datetime) -> plan.Plan:
    """Plan the events that wait, without those of keys that are full: many of them would hide all others."""
    one = whole.definition
    limit = one.at_once_per_key
    limited = one.at_once is not None or limit is not None
    running = trigger_events.running(connection, trigger) if limited else {}
    full = [key for key, count in running.items() if limit is not None and count >= limit]
    if one.wakes:
        full += waking.held(connection, trigger, whole)
        limit = 1  # the next event of its key is for this run
    found = plan.due(
        one,
        trigger_events.waiting(
            connection, trigger, 0 if one.debounce else limit or STARTS, 10 * STARTS, full
        ),
        running,
        trigger_events.starts(connection, trigger, one.rate) if one.rate else (),
        now,
    )
    if full:
        return replace(found, next_at=min(found.next_at or now + plan.AGAIN, now + plan.AGAIN))
    return found


def _try_to_start(
    connection: Connection, trigger: UUID, one: CurrentTrigger, event: WaitingEvent, now: datetime
) -> None:
    """Start the run of an event, or write why it cannot be started."""
    if one.definition.debounce:
        reason = f"a later event of its key came within {one.definition.debounce} s"
        trigger_events.skip_waiting(connection, trigger, reason, key=event.key, before=event.number)
    try:
        _start(connection, trigger, one, event.number, now)
    except (RequestError, NotJson, Tampered) as exc:
        reason = _reason(exc)
        log.warning("Trigger %s: no run for event %s: %s", trigger, event.number, reason)
        trigger_events.write(connection, trigger, event.number, state=State.FAILED, reason=reason)


def _start(
    connection: Connection, trigger: UUID, one: CurrentTrigger, number: int, now: datetime
) -> None:
    received = event_of(connection, trigger, one, number)
    facts, said = received.facts, one.definition
    done = start(
        agent=said.agent,
        input=mapping.applied(said.mapping, facts),
        business_key=said.business_key_of(facts, f"{trigger} {received.key}"),
        actor=Actor(person=one.owner),
        makers=merged(one.makers, [received.by or ""]),
        thread=said.thread_of(facts),
    )
    written = {"started_at": now} if done.created else {"reason": FOUND}
    trigger_events.write(connection, trigger, number, state=State.STARTED, run=done.run, **written)


def _reason(exc: Exception) -> str:
    return exc.all_of_it if isinstance(exc, InvalidInput) else str(exc)

"""Starts the runs of triggers by their events, and wakes runs that wait for one.

The transaction that receives an event writes a new row for each trigger. The transaction that locks a trigger judges
its new events, and starts the runs of those whose turn it is. So each event is handled once.

The transaction that ends the wait of a run writes that to the event. The key of an event says which run it wakes, and
its data must contain what that run waits for. An event that no run waits for yet is looked at again, so a run may begin
to wait after its event came.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from runtime.control import external_events
from runtime.control.start import start
from runtime.core.run.continuation import merge_people
from runtime.core.values.errors import NotJson
from runtime.errors import InvalidInput, RequestError, Tampered
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.store.pool import Connection
from runtime.store.tables import occurrences, trigger_rows, trigger_sources
from runtime.store.tables.occurrences import OccurrenceState
from runtime.triggers import event_definition, mapping
from runtime.triggers.event_definition import EventDefinition, EventPlan, Wakes
from runtime.triggers.sources import read_location
from runtime.triggers.trigger import SignedTrigger, TriggerStatus, read_event

log = logging.getLogger(__name__)

EventTrigger = SignedTrigger[EventDefinition]
JUDGED = 200  # new events that one transaction judges
STARTS = 50  # runs that one transaction starts
MAX_WAITING = 10_000  # events of one trigger that wait
FAILPOINT = "EventFired"
FILTERED = "the filter does not hold"
SAME_KEY = "a run with this business key was there"
FULL = f"{MAX_WAITING} events waited already"
WOKEN = 50  # runs that one transaction wakes
EVENT_KEPT = timedelta(days=1)  # that an event waits for its run
SENT = "its sender woke the runs that waited; this trigger is for its source and its webhook"
UNMET = "no run waited for it within a day"


def check(sent: Mapping[str, object], actor: Actor, now: datetime) -> EventDefinition:
    """Return the definition of a person who may send events, if the trigger wakes runs.

    Raise Forbidden, UnknownAgent, or InvalidInput naming the field.
    """
    definition = check_mapping(sent)
    if definition.wakes:
        wiring.resolve_access().require(actor, external_events.SCOPE)
    return definition


def check_mapping(sent: Mapping[str, object]) -> EventDefinition:
    """Return the definition, with a mapping that fits the agent's input as far as it does not depend on the event.

    Raise UnknownAgent, or InvalidInput naming the field.
    """
    definition = event_definition.read(sent, *read_location(sent))
    if definition.wakes == Wakes.ONLY:
        return definition
    try:
        wiring.resolve_catalogue().check_input(definition.agent, definition.mapping)
    except InvalidInput as exc:
        problems = [
            InvalidInput(mapping.MAPPING + refusal.field.removeprefix("input"), refusal.detail)
            for refusal in (exc, *exc.further)
        ]
        wrong = [
            problem
            for problem in problems
            if not mapping.is_open(definition.mapping, problem.field)
        ]
        if wrong:
            raise InvalidInput(wrong[0].field, wrong[0].detail, wrong[1:]) from exc
    return definition


def handle(connection: Connection, trigger: EventTrigger, now: datetime) -> bool:
    """Filter new events of a locked trigger, and start runs. Return whether there is more. Raises KeyMissing."""
    if trigger.status is not TriggerStatus.ACTIVE:
        trigger_rows.write(connection, trigger.id, state=trigger.status, due_at=None, problem="")
        return False
    numbers = occurrences.list_new_events(connection, trigger.id, JUDGED)
    room = MAX_WAITING
    if numbers:
        room -= occurrences.count(connection, trigger.id, OccurrenceState.WAITING)
    for number in numbers:
        room -= _judge(connection, trigger, number, room=room)
    has_more = len(numbers) == JUDGED
    if trigger.definition.wakes:
        has_more |= wake_all(connection, trigger, now)
    plan = _plan(connection, trigger, now)
    for event in plan.start[:STARTS]:
        debounce = trigger.definition.debounce
        if debounce:
            reason = f"a later event of its key came within {debounce} s"
            occurrences.skip_waiting(
                connection, trigger.id, reason, key=event.key, before=event.number
            )
        try:
            _start(connection, trigger, event.number, now)
        except (RequestError, NotJson, Tampered) as exc:
            reason = _format_reason(exc)
            log.warning("Trigger %s: no run for event %s: %s", trigger.id, event.number, reason)
            occurrences.write(
                connection, trigger.id, event.number, state=OccurrenceState.FAILED, reason=reason
            )
    has_more |= len(plan.start) >= STARTS
    due_at = now if plan.start else plan.next_at
    trigger_rows.write(connection, trigger.id, due_at=due_at, not_before=None, problem="")
    return has_more


def catch_up(connection: Connection, trigger: EventTrigger, now: datetime) -> None:
    """Leave the events that came before a change to the sweeper."""


def apply_act(
    connection: Connection, before: EventTrigger | None, after: EventTrigger, now: datetime
) -> None:
    """Have the sweeper look at the trigger, and read the source of a new definition from now on."""
    due_at = now if after.status is TriggerStatus.ACTIVE else None
    trigger_rows.write(
        connection, after.id, state=after.status, due_at=due_at, not_before=None, problem=""
    )
    definition = after.definition
    if after.status is TriggerStatus.ENDED or not definition.source:
        trigger_sources.delete_source(connection, after.id)
    elif before is None or before.definition is not definition:
        trigger_sources.write_source(connection, after.id, definition.source, definition.location)


def wake_all(
    connection: Connection, trigger: SignedTrigger[EventDefinition], now: datetime
) -> bool:
    """Wake the runs that wait for events of a locked trigger. Return whether there may be more."""
    definition = trigger.definition
    wakeable = occurrences.list_wakeable_events(
        connection, trigger.id, definition.agent, definition.event, WOKEN
    )
    # Runs are locked in the order of their ids, as by events that people send.
    for number, runs in sorted(wakeable, key=lambda pair: pair[1]):
        _try_to_wake(connection, trigger, number, runs)
    occurrences.skip_before(connection, trigger.id, now - EVENT_KEPT, UNMET)
    return len(wakeable) == WOKEN


def list_blocked_keys(connection: Connection, trigger: SignedTrigger[EventDefinition]) -> list[str]:
    """Return the keys whose events start no run now: all with Wakes.ONLY, else those of runs that are there."""
    if trigger.definition.wakes == Wakes.ONLY:
        return occurrences.list_waiting_keys(connection, trigger.id)
    return occurrences.list_keys_of_live_runs(connection, trigger.id, trigger.definition.agent)


def _judge(connection: Connection, trigger: EventTrigger, number: int, *, room: int) -> bool:
    """Apply the filter to a new event, and find its key. Return whether it waits now."""

    def write(state: OccurrenceState, **columns: str) -> bool:
        occurrences.write(connection, trigger.id, number, state=state, **columns)
        return state is OccurrenceState.WAITING

    definition = trigger.definition
    try:
        event = read_event(connection, trigger, number)
        if definition.wakes and event.by is not None:
            return write(OccurrenceState.SKIPPED, reason=SENT)
        facts = event.facts
        if not mapping.is_filter_met(definition.filter, facts):
            return write(OccurrenceState.SKIPPED, reason=FILTERED)
        key = definition.compute_key(facts)
    except (InvalidInput, Tampered) as exc:
        return write(OccurrenceState.FAILED, reason=_format_reason(exc))
    return (
        write(OccurrenceState.WAITING, key=key)
        if room > 0
        else write(OccurrenceState.SKIPPED, reason=FULL)
    )


def _plan(connection: Connection, trigger: EventTrigger, now: datetime) -> EventPlan:
    """Plan the events that wait, without those of keys that are full: many of them would hide all others."""
    definition = trigger.definition
    limit = definition.at_once_per_key
    is_limited = definition.at_once is not None or limit is not None
    running = occurrences.count_running_by_key(connection, trigger.id) if is_limited else {}
    full = [key for key, count in running.items() if limit is not None and count >= limit]
    if definition.wakes:
        full += list_blocked_keys(connection, trigger)
        limit = 1  # the next event of its key is for this run
    of_key = 0 if definition.debounce else limit or STARTS
    plan = event_definition.plan_starts(
        definition,
        occurrences.list_waiting_events(connection, trigger.id, of_key, 10 * STARTS, full),
        running,
        occurrences.list_recent_starts(connection, trigger.id, definition.rate)
        if definition.rate
        else (),
        now,
    )
    if full:
        again = now + event_definition.LOOK_AGAIN
        return replace(plan, next_at=min(plan.next_at or again, again))
    return plan


def _start(connection: Connection, trigger: EventTrigger, number: int, now: datetime) -> None:
    event = read_event(connection, trigger, number)
    facts, definition = event.facts, trigger.definition
    started = start(
        agent=definition.agent,
        input=mapping.apply_mapping(definition.mapping, facts),
        business_key=definition.compute_business_key(facts, f"{trigger.id} {event.key}"),
        actor=Actor(person=trigger.owner),
        makers=merge_people(trigger.makers, [event.by or ""]),
        thread=definition.compute_thread(facts),
    )
    columns = {"started_at": now} if started.created else {"reason": SAME_KEY}
    occurrences.write(
        connection, trigger.id, number, state=OccurrenceState.STARTED, run=started.run, **columns
    )


def _format_reason(exc: Exception) -> str:
    return exc.all_of_it if isinstance(exc, InvalidInput) else str(exc)


def _try_to_wake(
    connection: Connection, trigger: SignedTrigger[EventDefinition], number: int, runs: list[UUID]
) -> None:
    """End the waits of one run with an event, or write why it cannot be done."""
    try:
        if len(runs) > 1:
            raise InvalidInput("business_key", f"{len(runs)} runs wait for it; it must say which")
        event = read_event(connection, trigger, number)
        is_woken = external_events.wake(
            connection,
            run=runs[0],
            id=event.id,
            name=event.name,
            data=event.facts["data"],
            owner=trigger.owner,
            makers=trigger.makers,
        )
        if not is_woken:
            return  # the wait ended meanwhile
    except (RequestError, Tampered) as exc:
        reason = exc.all_of_it if isinstance(exc, InvalidInput) else str(exc)
        log.warning("Trigger %s: event %s wakes no run: %s", trigger.id, number, reason)
        occurrences.write(
            connection, trigger.id, number, state=OccurrenceState.FAILED, reason=reason
        )
        return
    occurrences.write(connection, trigger.id, number, state=OccurrenceState.WOKEN, run=runs[0])

"""Wakes runs by the events of a trigger, once each: the transaction that ends the wait writes that to the event.

The key of an event says which run, and its data must contain what that run waits for. An event that no run waits for
yet is looked at again, so a run may begin to wait after its event came.
"""

import logging
from datetime import datetime, timedelta
from uuid import UUID

from runtime.control.external_events import wake
from runtime.errors import InvalidInput, RequestError, Tampered
from runtime.store.pool import Connection
from runtime.store.tables import occurrences
from runtime.store.tables.occurrences import OccurrenceState
from runtime.triggers.event_definition import EventDefinition, Wakes
from runtime.triggers.trigger import SignedTrigger, read_event

log = logging.getLogger(__name__)

WOKEN = 50  # runs that one transaction wakes
KEPT = timedelta(days=1)  # that an event waits for its run

SENT = "its sender woke the runs that waited; this trigger is for its source and its webhook"
UNMET = "no run waited for it within a day"


def wake_all(
    connection: Connection, trigger: SignedTrigger[EventDefinition], now: datetime
) -> bool:
    """Wake the runs that wait for events of a locked trigger. Return whether there may be more."""
    definition = trigger.definition
    wakeable = occurrences.wakeable(
        connection, trigger.id, definition.agent, definition.event, WOKEN
    )
    # Runs are locked in the order of their ids, as by events that people send.
    for number, runs in sorted(wakeable, key=lambda pair: pair[1]):
        _try_to_wake(connection, trigger, number, runs)
    occurrences.skip_before(connection, trigger.id, now - KEPT, UNMET)
    return len(wakeable) == WOKEN


def keys_that_start_nothing(
    connection: Connection, trigger: SignedTrigger[EventDefinition]
) -> list[str]:
    """Return the keys whose events start no run now: all with Wakes.ONLY, else those of runs that are there."""
    if trigger.definition.wakes == Wakes.ONLY:
        return occurrences.keys_of_waiting(connection, trigger.id)
    return occurrences.keys_of_live_runs(connection, trigger.id, trigger.definition.agent)


def _try_to_wake(
    connection: Connection, trigger: SignedTrigger[EventDefinition], number: int, runs: list[UUID]
) -> None:
    """End the waits of one run with an event, or write why it cannot be done."""
    try:
        if len(runs) > 1:
            raise InvalidInput("business_key", f"{len(runs)} runs wait for it; it must say which")
        if not _wake(connection, trigger, number, runs[0]):
            return  # the wait ended meanwhile
    except (RequestError, Tampered) as exc:
        reason = exc.all_of_it if isinstance(exc, InvalidInput) else str(exc)
        log.warning("Trigger %s: event %s wakes no run: %s", trigger.id, number, reason)
        occurrences.write(
            connection, trigger.id, number, state=OccurrenceState.FAILED, reason=reason
        )
        return
    occurrences.write(connection, trigger.id, number, state=OccurrenceState.WOKEN, run=runs[0])


def _wake(
    connection: Connection, trigger: SignedTrigger[EventDefinition], number: int, run: UUID
) -> bool:
    event = read_event(connection, trigger, number)
    return wake(
        connection,
        run=run,
        id=event.id,
        name=event.name,
        data=event.facts["data"],
        owner=trigger.owner,
        makers=trigger.makers,
    )

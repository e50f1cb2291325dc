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
from runtime.store.tables.triggers import trigger_events
from runtime.store.tables.triggers.trigger_events import State
from runtime.triggers.events.definition import Wakes
from runtime.triggers.events.trigger import CurrentTrigger, event

log = logging.getLogger(__name__)

WOKEN = 50  # runs that one transaction wakes
KEPT = timedelta(days=1)  # that an event waits for its run

SENT = "its sender woke the runs that waited; this trigger is for its source and its webhook"
UNMET = "no run waited for it within a day"


def wake_all(connection: Connection, trigger: UUID, one: CurrentTrigger, now: datetime) -> bool:
    """Wake the runs that wait for events of a locked trigger. Return whether there may be more."""
    said = one.definition
    found = trigger_events.wakeable(connection, trigger, said.agent, said.event, WOKEN)
    # Runs are locked in the order of their ids, as by events that people send.
    for number, runs in sorted(found, key=lambda one: one[1]):
        _try_to_wake(connection, trigger, one, number, runs)
    trigger_events.skip_before(connection, trigger, now - KEPT, UNMET)
    return len(found) == WOKEN


def held(connection: Connection, trigger: UUID, one: CurrentTrigger) -> list[str]:
    """Return the keys whose events start no run now: all with Wakes.ONLY, else those of runs that are there."""
    if one.definition.wakes == Wakes.ONLY:
        return trigger_events.keys_of_waiting(connection, trigger)
    return trigger_events.keys_of_live_runs(connection, trigger, one.definition.agent)


def _try_to_wake(
    connection: Connection, trigger: UUID, one: CurrentTrigger, number: int, runs: list[UUID]
) -> None:
    """End the waits of one run with an event, or write why it cannot be done."""
    try:
        if len(runs) > 1:
            raise InvalidInput("business_key", f"{len(runs)} runs wait for it; it must say which")
        if not _wake(connection, trigger, one, number, runs[0]):
            return  # the wait ended meanwhile
    except (RequestError, Tampered) as exc:
        reason = exc.all_of_it if isinstance(exc, InvalidInput) else str(exc)
        log.warning("Trigger %s: event %s wakes no run: %s", trigger, number, reason)
        trigger_events.write(connection, trigger, number, state=State.FAILED, reason=reason)
        return
    trigger_events.write(connection, trigger, number, state=State.WOKEN, run=runs[0])


def _wake(
    connection: Connection, trigger: UUID, one: CurrentTrigger, number: int, run: UUID
) -> bool:
    received = event(connection, trigger, one, number)
    return wake(
        connection,
        run=run,
        id=received.id,
        name=received.name,
        data=received.facts["data"],
        owner=one.owner,
        makers=one.makers,
    )

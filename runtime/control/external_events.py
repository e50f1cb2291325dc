"""Delivers an external event to the calls that wait for it, and offers it to triggers, which start or wake runs.

An event is accepted once by its source and id. It ends the waits that are open when it arrives and is not kept for
later ones. Triggers that are made later do not get it either.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from runtime.control.user_actions import join, notify, open_transaction
from runtime.core.run.continuation import merge_people
from runtime.core.values.json_values import hash_value, measure_size
from runtime.core.values.limits import MAX_EVENT_DATA, MAX_EVENT_NAME, MAX_MATCHED
from runtime.errors import EventConflict, InvalidInput, RunEnded, TooManyMatched, require_json_input
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.store import pool, runs
from runtime.store.pool import Connection
from runtime.store.tables import occurrences, received_events, signals, waits
from runtime.store.tables.waits import EventWait

SCOPE = "events:send"


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """The stored event, whether it is `new`, the runs in which it ended a wait, and the number of triggers it has."""

    event: received_events.ExternalEventRow
    new: bool
    runs: tuple[UUID, ...] = ()
    triggers: int = 0


def deliver(
    *,
    id: object,
    name: object,
    data: object,
    actor: Actor,
    source: object = "",
    subject: object = "",
) -> Delivered:
    """End every wait that is open for this event, and offer it to triggers. Sending it again has no effect.

    An event is the same by its id, or by `source` and id. Raise, in this order: Forbidden; InvalidInput naming the
    field; EventConflict, TooManyMatched.
    """
    wiring.resolve_access().require(actor, SCOPE)
    event = {
        "id": _check_name(id, "id"),
        "name": _check_name(name, "name"),
        "data": _read_event_data(data),
        "source": "" if source in (None, "") else _check_name(source, "source"),
        "subject": "" if subject in (None, "") else _check_name(subject, "subject"),
    }
    noted = {"event": event["name"], "id": event["id"]}
    with open_transaction() as connection:
        delivered = _deliver(connection, **event, actor=actor)
        for run in delivered.runs:
            join(connection, run, actor)
            _record_delivery(run, actor, noted)
    return delivered


def wake(
    connection: Connection,
    *,
    run: UUID,
    id: str,
    name: str,
    data: object,
    owner: str,
    makers: Sequence[str],
) -> bool:
    """End the waits of a run that are open for an event of a trigger. Return False without one, and write nothing.

    The owner of the trigger sends it. Neither they nor the makers may decide in the run from now on. The caller's
    transaction says that the event is handled. Raise Forbidden, or InvalidInput naming `data`.
    """
    sender = Actor(person=owner)
    wiring.resolve_access().require(sender, SCOPE)
    text = json.dumps(_read_event_data(data))
    matching = waits.list_matching_waits(connection, name, text, limit=MAX_MATCHED, run=run)
    if not matching or not _notify_live_run(connection, run):
        return False
    ended = [wait for wait in matching if waits.complete(connection, wait)]
    for wait in ended:
        _signal(connection, wait, {"event": name, "id": id, "data": data}, sender)
    if ended:
        for person in merge_people([owner], makers):
            join(connection, run, Actor(person=person))
        _record_delivery(run, sender, {"event": name, "id": id})
    return bool(ended)


def _record_delivery(run: UUID, actor: Actor, detail: dict[str, str | None]) -> None:
    """Write the audit row, and have a worker take the run after the commit."""
    wiring.resolve_approvals().record_audit(run=run, actor=actor, act="sent", detail=detail)
    notify(run)


def _deliver(
    connection: Connection,
    *,
    id: str,
    name: str,
    data: dict[str, Any],
    source: str,
    subject: str,
    actor: Actor,
) -> Delivered:
    """Record the event, send a signal to each call that waits for it, and a row to each trigger."""
    source_fields = {"source": source, "subject": subject} if source or subject else {}
    digest = hash_value({"name": name, "data": data, **source_fields})
    key = json.dumps([source, id]) if source else id
    if not received_events.claim_id(
        connection, id=key, name=name, digest=digest, by=actor.person, token=actor.token
    ):
        stored = received_events.read_id(connection, key)
        if stored.digest != digest:
            raise EventConflict
        return Delivered(event=stored, new=False)
    matching = waits.list_matching_waits(connection, name, json.dumps(data), limit=MAX_MATCHED + 1)
    if len(matching) > MAX_MATCHED:
        raise TooManyMatched
    live = [
        run
        for run in dict.fromkeys(wait.run for wait in matching)
        if _notify_live_run(connection, run)
    ]
    ended = [wait for wait in matching if wait.run in live and waits.complete(connection, wait)]
    for wait in ended:
        _signal(connection, wait, {"event": name, "id": id, "data": data}, actor)
    received_events.count_waits(connection, key, len(ended))
    event = received_events.VerifiedEvent(
        key=json.dumps(["sent", key]),
        source=source,
        id=id,
        name=name,
        subject=subject,
        data=json.dumps(data, ensure_ascii=False),
        by=actor.person,
        at=pool.read_clock(connection),
    )
    number = received_events.insert(connection, event, token=actor.token)
    offered = 0 if number is None else occurrences.offer(connection, number, name)
    return Delivered(
        event=received_events.read_id(connection, key),
        new=True,
        runs=tuple(dict.fromkeys(wait.run for wait in ended)),
        triggers=offered,
    )


def _notify_live_run(connection: Connection, run: UUID) -> bool:
    """Lock the run's row, so that no wait times out meanwhile. Return False for a run that has ended."""
    try:
        runs.notify_signal(connection, run)
    except RunEnded:
        return False
    return True


def _signal(connection: Connection, wait: EventWait, result: dict[str, Any], actor: Actor) -> None:
    signal = signals.EventSignal(frame=wait.frame, call=wait.call, result=result, by=actor.person)
    signals.send(connection, wait.run, signal)


def _check_name(text: object, field: str) -> Any:
    if not isinstance(text, str) or not 1 <= len(text) <= MAX_EVENT_NAME:
        raise InvalidInput(field, f"must be text of 1 to {MAX_EVENT_NAME} characters")
    return require_json_input(text, field)


def _read_event_data(data: object) -> Any:
    if not isinstance(data, dict):
        raise InvalidInput("data", "must be an object")
    size = measure_size(require_json_input(data, "data"))
    if size > MAX_EVENT_DATA:
        raise InvalidInput("data", f"is {size} bytes of JSON; send at most {MAX_EVENT_DATA}")
    return data

"""Delivers an external event to the calls that wait for it.

An event is accepted once by its id. It ends the waits that are open when it arrives and is not kept for later ones.
"""

import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from runtime.control.transaction import atomic, join, notify
from runtime.core.digest import require_json, sha256_of
from runtime.core.errors import NotJson
from runtime.core.limits import MAX_EVENT_DATA, MAX_EVENT_NAME, MAX_MATCHED, size_of
from runtime.errors import EventConflict, InvalidInput, RunEnded, TooManyMatched
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.store import runs
from runtime.store.pool import Connection
from runtime.store.tables import external_events, signals, waits
from runtime.store.tables.external_events import ExternalEvent
from runtime.store.tables.waits import EventWait

SCOPE = "events:send"


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """The stored event, whether it is `new`, and the runs in which it ended a wait."""

    event: ExternalEvent
    new: bool
    runs: tuple[UUID, ...] = ()


def deliver(*, id: object, name: object, data: object, actor: Actor) -> Delivered:
    """End every wait that is open for this event. Sending the same event id again has no effect.

    Raise, in this order: Forbidden; InvalidInput naming `id`, `name` or `data`; EventConflict, TooManyMatched.
    """
    wiring.access().require(actor, SCOPE)
    event = {"id": _name(id, "id"), "name": _name(name, "name"), "data": _data(data)}
    noted = {"event": event["name"], "id": event["id"]}
    with atomic() as connection:
        done = _deliver(connection, **event, actor=actor)
        for run in done.runs:
            join(connection, run, actor)
            wiring.approvals().record_audit(run=run, actor=actor, act="sent", detail=noted)
            notify(run)
    return done


def _deliver(
    connection: Connection, *, id: str, name: str, data: dict[str, Any], actor: Actor
) -> Delivered:
    """Record the event, and send a signal to each call that waits for it."""
    digest = sha256_of({"name": name, "data": data})
    if not external_events.insert(
        connection, id=id, name=name, digest=digest, by=actor.person, token=actor.token
    ):
        known = external_events.read(connection, id)
        if known.digest != digest:
            raise EventConflict
        return Delivered(event=known, new=False)
    found = waits.matching(connection, name, json.dumps(data), limit=MAX_MATCHED + 1)
    if len(found) > MAX_MATCHED:
        raise TooManyMatched
    live = [run for run in dict.fromkeys(wait.run for wait in found) if _rings(connection, run)]
    ended = [wait for wait in found if wait.run in live and waits.complete(connection, wait)]
    for wait in ended:
        _signal(connection, wait, {"event": name, "id": id, "data": data}, actor)
    external_events.count(connection, id, len(ended))
    runs = tuple(dict.fromkeys(wait.run for wait in ended))
    return Delivered(event=external_events.read(connection, id), new=True, runs=runs)


def _rings(connection: Connection, run: UUID) -> bool:
    """Lock the run's row, so that no wait times out meanwhile. Return False for a run that has ended."""
    try:
        runs.notify_signal(connection, run)
    except RunEnded:
        return False
    return True


def _signal(connection: Connection, wait: EventWait, result: dict[str, Any], actor: Actor) -> None:
    place = {"frame": wait.frame, "call": wait.call}
    signals.send_event(connection, run=wait.run, result=result, by=actor.person, **place)


def _name(text: object, field: str) -> Any:
    if not isinstance(text, str) or not 1 <= len(text) <= MAX_EVENT_NAME:
        raise InvalidInput(field, f"must be text of 1 to {MAX_EVENT_NAME} characters")
    return _checked(text, field)


def _data(data: object) -> Any:
    if not isinstance(data, dict):
        raise InvalidInput("data", "must be an object")
    size = size_of(_checked(data, "data"))
    if size > MAX_EVENT_DATA:
        raise InvalidInput("data", f"is {size} bytes of JSON; send at most {MAX_EVENT_DATA}")
    return data


def _checked(value: Any, field: str) -> Any:
    try:
        require_json(value, field)
    except NotJson as exc:
        raise InvalidInput(exc.where, exc.why) from exc
    return value

"""Brings an event from outside to the calls that wait for it, in the caller's transaction.

An event is taken once by its id, and ends the waits that are open when it comes: it is not kept for later ones.
"""

import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from runtime.core.digest import sha256_of
from runtime.core.limits import MAX_MATCHED
from runtime.errors import EventConflict, RunEnded, TooManyMatched
from runtime.ports import Actor
from runtime.store import external_events, runs, signals, waits
from runtime.store.external_events import Sent
from runtime.store.pool import Connection
from runtime.store.waits import Waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """The event as it is remembered, whether it is `new`, and the runs in which it ended a wait just now."""

    event: Sent
    new: bool
    runs: tuple[UUID, ...] = ()


def deliver(
    connection: Connection, *, id: str, name: str, data: dict[str, Any], actor: Actor
) -> Delivered:
    """Note the event, and have its runs hear of it. The same event again changes nothing.

    Raises EventConflict for another event of that id, TooManyMatched.
    """
    digest = sha256_of({"name": name, "data": data})
    if not external_events.put(
        connection, id=id, name=name, digest=digest, by=actor.person, token=actor.token
    ):
        known = external_events.read(connection, id)
        if known.digest != digest:
            raise EventConflict
        return Delivered(event=known, new=False)
    found = waits.found(connection, name, json.dumps(data), limit=MAX_MATCHED + 1)
    if len(found) > MAX_MATCHED:
        raise TooManyMatched
    live = [run for run in dict.fromkeys(wait.run for wait in found) if _rings(connection, run)]
    ended = [wait for wait in found if wait.run in live and waits.take(connection, wait)]
    for wait in ended:
        _signal(connection, wait, {"event": name, "id": id, "data": data}, actor)
    external_events.count(connection, id, len(ended))
    runs = tuple(dict.fromkeys(wait.run for wait in ended))
    return Delivered(event=external_events.read(connection, id), new=True, runs=runs)


def _rings(connection: Connection, run: UUID) -> bool:
    """Hold the run's row, so that whoever has waits end by time comes before or after. False for one that is over."""
    try:
        runs.ring(connection, run)
    except RunEnded:
        return False
    return True


def _signal(connection: Connection, wait: Waiting, result: dict[str, Any], actor: Actor) -> None:
    place = {"frame": wait.frame, "call": wait.call}
    signals.send_event(connection, run=wait.run, result=result, by=actor.person, **place)

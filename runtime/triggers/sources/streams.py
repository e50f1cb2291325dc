"""Reads streams: each entry becomes an event of its trigger, once by its id.

The server delivers an entry to the group of the trigger and keeps it as pending until it is acknowledged. That is after
the commit of its event, so a sweeper that dies before leaves it to the next one, which claims it. After the commit, the
id is known: an entry that is delivered again is acknowledged and does nothing.
"""

import logging
import threading
from collections.abc import Mapping
from functools import partial
from typing import Any
from uuid import UUID

import redis
from django.conf import settings

from runtime.core.errors import NotJson
from runtime.core.foreign_json import read_json
from runtime.core.limits import MAX_DELIVERY, escape_text
from runtime.store import failpoints
from runtime.store.pool import Connection
from runtime.store.tables.triggers import trigger_events
from runtime.store.tables.triggers.sources import Kind
from runtime.triggers.events import places
from runtime.triggers.events.definition import Definition
from runtime.triggers.sources import keeping, queue, rounds
from runtime.triggers.sources.keeping import MAX_OPEN, Refused
from runtime.triggers.sources.queue import Entry
from runtime.triggers.sources.rounds import Looked, Unreadable

log = logging.getLogger(__name__)

TAKEN = 50  # entries that one transaction takes
WHOLE = "data"  # a field that holds the data as JSON, if it is the only one


def look(_: Connection, stop: threading.Event) -> None:
    """Look at each stream."""
    rounds.each(Kind.STREAM, _look, stop)


def _look(connection: Connection, id: UUID, one: Definition) -> Looked:
    """Take the next entries of a stream. Raise Unreadable."""
    if one.stream not in places.streams():
        raise Unreadable(f"{places.STREAMS} does not name the stream")
    if trigger_events.open_count(connection, id) >= MAX_OPEN:
        return Looked()
    server, group = queue.client(settings.ABEYANCE_STREAMS_URL), f"{queue.GROUP}:{id}"
    try:
        found = queue.entries(server, one.stream, group, TAKEN)
    except redis.RedisError as exc:
        raise Unreadable(f"the stream cannot be read: {exc}") from exc
    if not found:
        return Looked()
    failpoints.hit("before", Kind.STREAM.failpoint, 0)
    for entry in found:
        _take(connection, id, one, entry)
    after = partial(_acknowledge, server, one.stream, group, [entry.id for entry in found])
    return Looked(more=len(found) == TAKEN, after=after)


def _take(connection: Connection, id: UUID, one: Definition, entry: Entry) -> None:
    """Make an event of an entry, or record why it is none."""
    key = ["stream", one.stream, entry.id]
    kept: dict[str, Any] = {"source": f"stream:{one.stream}", "id": entry.id, "key": key}
    try:
        keeping.keep(connection, id, one, **kept, data=_data(entry.fields))
    except Refused as exc:
        keeping.refuse(connection, id, one, **kept, data={"problem": str(exc)}, why=str(exc))


def _data(fields: Mapping[bytes, bytes]) -> dict[str, Any]:
    """Return the fields as texts, or the object that the one field `data` holds. Raise Refused."""
    size = sum(len(name) + len(value) for name, value in fields.items())
    if size > MAX_DELIVERY:
        raise Refused(f"it has {size} bytes, at most {MAX_DELIVERY}")
    try:
        texts = {escape_text(name.decode()): value.decode() for name, value in fields.items()}
        if [*texts] != [WHOLE]:
            return {name: escape_text(text) for name, text in texts.items()}
        data = read_json(texts[WHOLE], WHOLE)
    except UnicodeDecodeError as exc:
        raise Refused("it is not UTF-8") from exc
    except NotJson as exc:
        raise Refused(f"its {exc.where}: {exc.why}") from exc
    except (ValueError, RecursionError) as exc:
        raise Refused(f"its data is no JSON: {exc}") from exc
    if not isinstance(data, dict):
        raise Refused("its data is no object")
    return data


def _acknowledge(server: "redis.Redis", stream: str, group: str, ids: list[str]) -> bool:
    """Acknowledge entries whose events are committed. Return False if the next look must do it."""
    try:
        queue.acknowledge(server, stream, group, ids)
    except redis.RedisError as exc:
        log.warning("Stream %s: not acknowledged, again at the next look: %s", stream, exc)
        return False
    return True

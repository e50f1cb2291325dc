"""Reads streams of a Redis or Valkey server: each entry becomes an event of its trigger, once by its id.

The server delivers an entry to the group of the trigger and keeps it as pending until it is acknowledged. That is after
the commit of its event, so a sweeper that dies before leaves it to the next one, which claims it. After the commit, the
id is known: an entry that is delivered again is acknowledged and does nothing.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any
from uuid import UUID

import redis
from django.conf import settings

from runtime.core.values.errors import NotJson
from runtime.core.values.json_values import read_json
from runtime.core.values.limits import MAX_DELIVERY
from runtime.core.values.texts import escape_text
from runtime.store import failpoints
from runtime.store.pool import Connection
from runtime.triggers.event_definition import EventDefinition
from runtime.triggers.sources import reading
from runtime.triggers.sources.reading import Look, NotAnEvent, SourceUnreadable, WatchedSource

log = logging.getLogger(__name__)

GROUP = "signoff"  # and the id of the trigger
CONSUMER = "sweeper"
TIMEOUT_SECONDS = 5.0
TAKEN = 50  # entries that one transaction takes
WHOLE = "data"  # a field that holds the data as JSON, if it is the only one

_END = b"0-0"  # no pending entry comes after these
_NO_GROUP = "NOGROUP"
_NO_KEY = "requires the key to exist"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEntry:
    """An entry, with its fields as the server has them."""

    id: str
    fields: Mapping[bytes, bytes]


@cache
def connect(url: str) -> "redis.Redis":
    """Return the client of a server, which connects when it is used."""
    return redis.Redis.from_url(
        url, socket_connect_timeout=TIMEOUT_SECONDS, socket_timeout=TIMEOUT_SECONDS, protocol=2
    )


def read_entries(server: "redis.Redis", stream: str, group: str, limit: int) -> list[StreamEntry]:
    """Take the first entries that were delivered and not acknowledged, then new ones.

    The caller has locked the source, so no other sweeper works on an entry that was delivered: its reader is gone.
    Raises RedisError.
    """
    try:
        return _read_group(server, stream, group, limit)
    except redis.ResponseError as exc:
        if not str(exc).startswith(_NO_GROUP):
            raise
    try:
        server.xgroup_create(stream, group, id="0")
    except redis.ResponseError as exc:
        if _NO_KEY in str(exc):
            return []  # no program has written to it yet
        raise
    return _read_group(server, stream, group, limit)


def acknowledge(server: "redis.Redis", stream: str, group: str, ids: Sequence[str]) -> None:
    """Tell the server that these entries are kept in Postgres. Raises RedisError."""
    server.xack(stream, group, *ids)


def _look(connection: Connection, trigger: UUID, definition: EventDefinition) -> Look:
    """Take the next entries of a stream. Raise SourceUnreadable."""
    if reading.is_full(connection, trigger):
        return Look()
    stream = definition.location
    server, group = connect(settings.SIGNOFF_STREAMS_URL), f"{GROUP}:{trigger}"
    try:
        entries = read_entries(server, stream, group, TAKEN)
    except redis.RedisError as exc:
        raise SourceUnreadable(f"the stream cannot be read: {exc}") from exc
    if not entries:
        return Look()
    failpoints.hit("before", SOURCE.failpoint, 0)
    for entry in entries:
        key = ["stream", stream, entry.id]
        try:
            data = _parse_fields(entry.fields)
        except NotAnEvent as exc:
            reading.refuse(
                connection, trigger, definition, id=entry.id, key=key, data={}, reason=str(exc)
            )
        else:
            reading.keep(connection, trigger, definition, id=entry.id, key=key, data=data)
    after = partial(_acknowledge, server, stream, group, [entry.id for entry in entries])
    return Look(has_more=len(entries) == TAKEN, after=after)


def _parse_fields(fields: Mapping[bytes, bytes]) -> dict[str, Any]:
    """Return the fields as texts, or the object that the one field `data` holds. Raise NotAnEvent."""
    size = sum(len(name) + len(value) for name, value in fields.items())
    if size > MAX_DELIVERY:
        raise NotAnEvent(f"it has {size} bytes, at most {MAX_DELIVERY}")
    try:
        texts = {escape_text(name.decode()): value.decode() for name, value in fields.items()}
        if [*texts] != [WHOLE]:
            return {name: escape_text(text) for name, text in texts.items()}
        data = read_json(texts[WHOLE], WHOLE)
    except UnicodeDecodeError as exc:
        raise NotAnEvent("it is not UTF-8") from exc
    except NotJson as exc:
        raise NotAnEvent(f"its {exc.field}: {exc.detail}") from exc
    except (ValueError, RecursionError) as exc:
        raise NotAnEvent(f"its data is no JSON: {exc}") from exc
    if not isinstance(data, dict):
        raise NotAnEvent("its data is no object")
    return data


def _acknowledge(server: "redis.Redis", stream: str, group: str, ids: list[str]) -> bool:
    """Acknowledge entries whose events are committed. Return False if the next look must do it."""
    try:
        acknowledge(server, stream, group, ids)
    except redis.RedisError as exc:
        log.warning("Stream %s: not acknowledged, again at the next look: %s", stream, exc)
        return False
    return True


def _read_group(server: "redis.Redis", stream: str, group: str, limit: int) -> list[StreamEntry]:
    answer: Any = server.xautoclaim(stream, group, CONSUMER, min_idle_time=0, count=limit)
    cursor, delivered, *_ = answer
    entries = _parse_entries(delivered)
    if cursor == _END and len(entries) < limit:
        fresh: Any = server.xreadgroup(group, CONSUMER, {stream: ">"}, count=limit - len(entries))
        entries += [entry for _, batch in fresh or () for entry in _parse_entries(batch)]
    return entries


def _parse_entries(batch: Sequence[Any]) -> list[StreamEntry]:
    """Read entries of an answer, without those that were deleted."""
    return [
        StreamEntry(id=name.decode(), fields=fields) for name, fields in batch if fields is not None
    ]


SOURCE = WatchedSource(
    kind="stream",
    setting="SIGNOFF_STREAMS",
    help="Each entry of this stream is an event of this trigger.",
    item="entry",
    items="entries",
    parse=str,
    allows=lambda stream: stream in settings.SIGNOFF_STREAMS,
    look=_look,
)

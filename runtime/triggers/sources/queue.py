"""A stream of a Redis or Valkey server, read by a consumer group: takes entries, and acknowledges them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import redis

GROUP = "abeyance"  # and the id of the trigger
CONSUMER = "sweeper"
TIMEOUT_SECONDS = 5.0

_END = b"0-0"  # no entry after these is left
_NO_GROUP = "NOGROUP"
_NO_KEY = "requires the key to exist"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An entry, with its fields as the server has them."""

    id: str
    fields: Mapping[bytes, bytes]


@cache
def client(url: str) -> "redis.Redis":
    """Return the client of a server, which connects when it is used."""
    return redis.Redis.from_url(
        url, socket_connect_timeout=TIMEOUT_SECONDS, socket_timeout=TIMEOUT_SECONDS, protocol=2
    )


def entries(server: "redis.Redis", stream: str, group: str, most: int) -> list[Entry]:
    """Take the first entries that were delivered and not acknowledged, then new ones.

    The caller has locked the source, so no other sweeper works on an entry that was delivered: its reader is gone.
    Raises RedisError.
    """
    try:
        return _entries(server, stream, group, most)
    except redis.ResponseError as exc:
        if not str(exc).startswith(_NO_GROUP):
            raise
    try:
        server.xgroup_create(stream, group, id="0")
    except redis.ResponseError as exc:
        if _NO_KEY in str(exc):
            return []  # no program has written to it yet
        raise
    return _entries(server, stream, group, most)


def acknowledge(server: "redis.Redis", stream: str, group: str, ids: Sequence[str]) -> None:
    """Tell the server that these entries are kept in Postgres. Raises RedisError."""
    server.xack(stream, group, *ids)


def _entries(server: "redis.Redis", stream: str, group: str, most: int) -> list[Entry]:
    answer: Any = server.xautoclaim(stream, group, CONSUMER, min_idle_time=0, count=most)
    more, left, *_ = answer
    found = _read(left)
    if more == _END and len(found) < most:
        fresh: Any = server.xreadgroup(group, CONSUMER, {stream: ">"}, count=most - len(found))
        found += [entry for _, batch in fresh or () for entry in _read(batch)]
    return found


def _read(batch: Sequence[Any]) -> list[Entry]:
    """Read entries of an answer, without those that were deleted."""
    return [Entry(id=name.decode(), fields=said) for name, said in batch if said is not None]

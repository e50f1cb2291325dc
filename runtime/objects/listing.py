"""Lists objects that other programs write below an address, by a cursor, and reads small ones. It writes nothing."""

import logging
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from runtime.objects.bucket import PROBLEMS, client, short

log = logging.getLogger(__name__)

MAX_LISTED = 1_000  # objects of one request
CONNECT, ANSWER = "3s", "5s"

_CODE = re.compile(r"<Code>(\w{1,60})</Code>")


class Unlisted(Exception):
    """The store cannot be listed, or does not answer in time; the message says why."""


class Unread(Exception):
    """An object cannot be read; the message says why. `passes` if a later try may succeed."""

    def __init__(self, reason: str, *, passes: bool) -> None:
        super().__init__(reason)
        self.passes = passes


@dataclass(frozen=True, slots=True, kw_only=True)
class Object:
    """An object as it is listed. `stamp` is its ETag, which changes with its content."""

    name: str
    stamp: str
    size: int
    at: datetime


class Listing:
    """The objects of a store, in the order of their names."""

    def __init__(self, store: Any, max_objects: int = MAX_LISTED) -> None:
        self._store = store
        self.max_objects = max_objects

    def after(self, cursor: str) -> list[Object]:
        """List the first objects after this name, at most `most`. Raise Unlisted."""
        try:
            pages = self._store.list(offset=cursor or None, chunk_size=self.max_objects)
            objects = [_object(entry) for entry in next(iter(pages), ())]
        except PROBLEMS as exc:
            raise Unlisted(_explain(exc)) from exc
        in_order = sorted(objects, key=lambda entry: entry.name.encode())
        if len(objects) == self.max_objects and objects != in_order:
            raise Unlisted("the store does not list objects in the order of their names")
        return in_order

    def read(self, expected: Object, max_bytes: int) -> bytes | None:
        """Return the object if it is unchanged and at most this large, else None. Raise Unread."""
        try:
            answer = self._store.get(expected.name)
            if _object(answer.meta) != expected or expected.size > max_bytes:
                return None
            return bytes(answer.bytes())
        except FileNotFoundError:
            return None
        except PROBLEMS as exc:
            raise Unread(_explain(exc), passes=not isinstance(exc, PermissionError)) from exc


@cache
def listing_at(address: str) -> Listing:
    """Return the objects below an address such as `s3://bucket/prefix`. Raise Unlisted if a credential is missing."""
    times = {"connect_timeout": CONNECT, "timeout": ANSWER}
    retries: Any = {"max_retries": 0, "retry_timeout": timedelta(seconds=5)}
    try:
        return Listing(client(address, times, retries))
    except (*PROBLEMS, TypeError) as exc:
        raise Unlisted(_explain(exc)) from exc


def _explain(exc: Exception) -> str:
    """Say in a few words why a request failed. The log has the full error."""
    message = str(exc)
    log.warning("An object store: %s", short(exc))
    if code := _CODE.search(message):
        return f"the store answers {code[1]}"
    if isinstance(exc, PermissionError):
        return "the store refuses the credentials"
    if "timed out" in message or "Timeout" in message:
        return "the store does not answer in time"
    if "error sending request" in message:
        return "the store cannot be reached"
    return short(exc)


def _object(meta: Any) -> Object:
    at = meta["last_modified"].astimezone(UTC)
    tag = meta["e_tag"] or f"{meta['size']}:{at.isoformat()}"
    return Object(name=meta["path"], stamp=tag, size=meta["size"], at=at)

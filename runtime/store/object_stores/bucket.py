"""An object store in a bucket: S3 and what speaks its protocol, Google Cloud Storage, Azure Blob Storage.

Objects that other programs write below an address are listed by a cursor; small ones can be read.
"""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import from_url

from runtime.errors import ObjectStoreDown
from runtime.ports.objects import MARKER, require_key, require_size

TIMES: Any = {"connect_timeout": "3s", "timeout": "20s"}
RETRIES: Any = {"max_retries": 2, "retry_timeout": timedelta(seconds=10)}
MAX_PROBLEM = 300
PROBLEMS = (BaseError, OSError)  # obstore raises FileNotFoundError and PermissionError of Python
log = logging.getLogger(__name__)

MAX_LISTED = 1_000  # objects of one request
CONNECT, ANSWER = "3s", "5s"

_CODE = re.compile(r"<Code>(\w{1,60})</Code>")


class Bucket:
    """The objects below an address such as `s3://bucket/prefix`. Credentials come from the environment."""

    def __init__(self, address: str, *, marked: bool = True) -> None:
        """Raise ValueError if an account or a credential is missing."""
        self._address = address
        self._marked = marked
        try:
            self._store: Any = make_client(address)
        except (*PROBLEMS, TypeError) as exc:
            raise ValueError(shorten_problem(exc)) from exc
        self._is_marked = False

    def put(self, key: str, data: bytes) -> None:
        """Write an object in one request."""
        require_key(key)
        with self._reporting():
            self._mark()
            self._store.put(key, data, use_multipart=False)

    def swap(self, key: str, data: bytes, *, before: bytes | None) -> bool:
        """Write an object if it is `before` now. The bucket compares its tag."""
        require_key(key)
        with self._reporting(), suppress(AlreadyExistsError, PreconditionError, FileNotFoundError):
            self._mark()
            mode: Any = "create" if before is None else self._version(key, before)
            if mode is not None:
                self._store.put(key, data, mode=mode, use_multipart=False)
                return True
        return False

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes | None:
        """Return the object, None if there is none."""
        with self._reporting(), suppress(FileNotFoundError):
            response = self._store.get(require_key(key))
            require_size(key, response.meta["size"], max_bytes)
            return bytes(response.bytes())
        self._require_marker()
        return None

    def delete(self, key: str) -> None:
        """Delete the object."""
        with self._reporting(), suppress(FileNotFoundError):
            self._store.delete(require_key(key))
        self._require_marker()

    def prepare(self) -> None:
        """Mark a bucket that is new."""
        if self._is_marked:
            return
        self.check()
        with self._reporting():
            self._mark()

    def check(self) -> None:
        """Return if the bucket can be listed, and is the store or has no object yet."""
        with self._reporting():
            is_new = not any(True for _ in self._store.list(chunk_size=1))
        if not is_new:
            self._require_marker()

    def _version(self, key: str, before: bytes) -> dict[str, str] | None:
        """Return the version of the object, None if it is not `before`."""
        response = self._store.get(key)
        if response.meta["size"] != len(before) or bytes(response.bytes()) != before:
            return None
        return {name: response.meta[name] for name in ("e_tag", "version") if response.meta[name]}

    def _mark(self) -> None:
        if self._is_marked or not self._marked:
            return
        try:
            self._store.head(MARKER)
        except FileNotFoundError:
            self._store.put(MARKER, b"", use_multipart=False)
        self._is_marked = True

    def _require_marker(self) -> None:
        """Raise ObjectStoreDown in another bucket, where no object would be found."""
        if self._marked:
            with self._reporting(missing=f"it lacks the object {MARKER}"):
                self._store.head(MARKER)

    @contextmanager
    def _reporting(self, missing: str = "") -> Iterator[None]:
        """Raise ObjectStoreDown for an error of the store; `missing` says so of a missing object."""
        try:
            yield
        except PROBLEMS as exc:
            is_missing = missing and isinstance(exc, FileNotFoundError)
            reason = missing if is_missing else shorten_problem(exc)
            raise ObjectStoreDown(
                f"the object store {self._address} cannot be used: {reason}"
            ) from exc


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
        """List the first objects after this name, at most `max_objects`. Raise Unlisted."""
        try:
            pages = self._store.list(offset=cursor or None, chunk_size=self.max_objects)
            objects = [_build_object(entry) for entry in next(iter(pages), ())]
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
            if _build_object(answer.meta) != expected or expected.size > max_bytes:
                return None
            return bytes(answer.bytes())
        except FileNotFoundError:
            return None
        except PROBLEMS as exc:
            raise Unread(_explain(exc), passes=not isinstance(exc, PermissionError)) from exc


def make_client(address: str, times: Any = TIMES, retries: Any = RETRIES) -> Any:
    """Return the client of a store, which connects when it is used."""
    # Only an address that the operator gives is without TLS.
    options: Any = {**times, "allow_http": True}
    return from_url(address, client_options=options, retry_config=retries)


def shorten_problem(exc: Exception) -> str:
    """Return the first sentences of an error, without the data structures that obstore appends."""
    return " ".join(str(exc).partition("Debug source:")[0].split())[:MAX_PROBLEM]


@cache
def open_listing(address: str) -> Listing:
    """Return the objects below an address such as `s3://bucket/prefix`. Raise Unlisted if a credential is missing."""
    times = {"connect_timeout": CONNECT, "timeout": ANSWER}
    retries: Any = {"max_retries": 0, "retry_timeout": timedelta(seconds=5)}
    try:
        return Listing(make_client(address, times, retries))
    except (*PROBLEMS, TypeError) as exc:
        raise Unlisted(_explain(exc)) from exc


def _explain(exc: Exception) -> str:
    """Say in a few words why a request failed. The log has the full error."""
    message = str(exc)
    log.warning("An object store: %s", shorten_problem(exc))
    if code := _CODE.search(message):
        return f"the store answers {code[1]}"
    if isinstance(exc, PermissionError):
        return "the store refuses the credentials"
    if "timed out" in message or "Timeout" in message:
        return "the store does not answer in time"
    if "error sending request" in message:
        return "the store cannot be reached"
    return shorten_problem(exc)


def _build_object(meta: Any) -> Object:
    at = meta["last_modified"].astimezone(UTC)
    tag = meta["e_tag"] or f"{meta['size']}:{at.isoformat()}"
    return Object(name=meta["path"], stamp=tag, size=meta["size"], at=at)

"""The store of large contents: a local folder, or a bucket of S3, Google or Azure.

Postgres has the reference to each object, and the key of an object is never used again. So a late deletion cannot hit
an object that was written after it.
"""

import re
from typing import Protocol

KEY = re.compile(r"[a-z0-9][a-z0-9._-]*(/[a-z0-9][a-z0-9._-]*)*")


class ObjectStore(Protocol):
    """Stores bytes under keys of lower case letters, digits, `.`, `-`, `_` and `/`.

    Each method may be called from any thread. It raises ObjectStoreDown if the store does not answer in time, refuses
    the credentials, or is another store than the one that was written to.
    """

    def put(self, key: str, data: bytes) -> None:
        """Write an object as a whole: a reader never sees a part of it. It is durable on return."""

    def get(self, key: str) -> bytes | None:
        """Return the object, None if the store answers that it has none."""

    def delete(self, key: str) -> None:
        """Delete the object, and what an interrupted `put` left of it. Do nothing if there is none."""

    def check(self) -> None:
        """Return if the store can be read."""


def require_key(key: str) -> str:
    """Return the key. Raise ValueError for one that could leave the store's folder or prefix."""
    if not KEY.fullmatch(key):
        raise ValueError(f"{key!r} is no key of an object")
    return key

"""The store of large contents, and stores that tools of agents use: local folders, buckets of S3, Google or Azure.

Postgres has the reference to each content, and its key is never used again. So a late deletion cannot hit an object
that was written after it.
"""

import re
from typing import Protocol

MARKER = "signoff-object-store"  # without it, a folder or bucket is not this store, such as an empty mount point
KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*")


class ObjectStore(Protocol):
    """Stores bytes under keys of ASCII letters, digits, `.`, `-`, `_` and `/`.

    Each method may be called from any thread. It raises ObjectStoreDown if the store does not answer in time, refuses
    the credentials, or is another store than the one that was written to.
    """

    def put(self, key: str, data: bytes) -> None:
        """Write an object as a whole: a reader never sees a part of it. It is durable on return."""

    def swap(self, key: str, data: bytes, *, before: bytes | None) -> bool:
        """Write an object like `put` if it is exactly `before` now; None means that there is none.

        Return False, with nothing written, if it is not. Of writers that swap at the same time one succeeds.
        """

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes | None:
        """Return the object, None if the store answers that it has none.

        Raise ValueError for a link, and for an object of more than `max_bytes` bytes, which is not read.
        """

    def delete(self, key: str) -> None:
        """Delete the object, and what an interrupted `put` left of it. Do nothing if there is none."""

    def prepare(self) -> None:
        """Make a new store one that can be read, although nothing was written to it. Do the same as `check`."""

    def check(self) -> None:
        """Return if the store can be read."""


def require_key(key: str) -> str:
    """Return the key. Raise ValueError for one that could leave the store's folder or prefix."""
    if not KEY.fullmatch(key):
        raise ValueError(f"{key!r} is no key of an object")
    return key


def require_size(key: str, size: int, max_bytes: int | None) -> None:
    """Raise ValueError for an object that is too large to be read."""
    if max_bytes is not None and size > max_bytes:
        raise ValueError(f"{key} has {size} bytes, at most {max_bytes} are read")

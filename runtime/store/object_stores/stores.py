"""Makes the object store of an address, for a process that answers people with reads that end in time.

A store that accepts a request and never answers would hold the thread of each reader for a minute. With BoundedReads a
reader waits SECONDS at most. Then the store counts as hanging: readers are refused at once, and every RETRY_SECONDS one
of them tries it again. A read that hangs keeps a thread of its own, of which there are at most READS.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from pathlib import Path

from runtime.errors import ObjectStoreDown
from runtime.ports.objects import ObjectStore
from runtime.store.object_stores.folder import Folder

SCHEMES = ("s3://", "gs://", "az://")
READS = 4
SECONDS = 3.0  # for a read
TURN_SECONDS = 0.5  # to wait while READS other reads are under way
RETRY_SECONDS = 5.0


class BoundedReads:
    """The store, with bounded reads. Its other methods are those of the store."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        seconds: float = SECONDS,
        turn_seconds: float = TURN_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._seconds, self._turn_seconds, self._clock = seconds, turn_seconds, clock
        self._turns = threading.BoundedSemaphore(READS)
        self._lock = threading.Lock()
        self._retry_at: float | None = None  # None while the store answers

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes | None:
        """Return the object, None if there is none. Raise ObjectStoreDown if the store does not answer in time."""
        self._check_answers()
        if not self._turns.acquire(timeout=self._turn_seconds):
            raise ObjectStoreDown(f"{READS} reads of the object store are under way")
        answer = Future[bytes | None]()
        # A daemon thread, so that the process can exit while the store hangs.
        threading.Thread(target=self._read, args=(key, max_bytes, answer), daemon=True).start()
        wait([answer], self._seconds)
        if not answer.done():
            self._retry_at = self._clock() + RETRY_SECONDS
            raise ObjectStoreDown(f"the object store did not answer within {self._seconds:g} s")
        self._retry_at = None
        return answer.result()

    def put(self, key: str, data: bytes) -> None:
        """Write an object."""
        self._store.put(key, data)

    def swap(self, key: str, data: bytes, *, before: bytes | None) -> bool:
        """Write an object if it is `before` now."""
        return self._store.swap(key, data, before=before)

    def delete(self, key: str) -> None:
        """Delete the object."""
        self._store.delete(key)

    def prepare(self) -> None:
        """Mark a new store."""
        self._store.prepare()

    def check(self) -> None:
        """Return if the store can be read."""
        self._store.check()

    def _check_answers(self) -> None:
        """Raise ObjectStoreDown while the store hangs, but let one reader per period try it."""
        with self._lock:
            now = self._clock()
            if self._retry_at is None:
                return
            if now < self._retry_at:
                raise ObjectStoreDown("the object store hangs")
            self._retry_at = now + RETRY_SECONDS

    def _read(self, key: str, max_bytes: int | None, answer: "Future[bytes | None]") -> None:
        try:
            answer.set_result(self._store.get(key, max_bytes=max_bytes))
        except BaseException as exc:  # the reader raises it
            answer.set_exception(exc)
        finally:
            self._turns.release()


def store_at(address: str, *, marked: bool = True) -> ObjectStore:
    """Return the store of a folder or a bucket. Raise ValueError if its configuration is incomplete.

    Without `marked` it is one that others write to as well, so it needs no object by which it is recognised.
    """
    if address.startswith("/"):
        return Folder(Path(address), marked=marked)
    from runtime.store.object_stores.bucket import (
        Bucket,  # most installations have a folder and need no client
    )

    return Bucket(address, marked=marked)

"""Writes the large contents of a step to the object store, before the step that names them is committed.

A store that is down makes the step wait: the runner keeps the outcome and tries again. A process that must end, and the
step of a transactional call, which holds a transaction open, put the content into Postgres instead.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

import psycopg

from runtime.broker import dispatch
from runtime.core.documents.blobs import Blob
from runtime.core.limits import plain
from runtime.errors import LeaseLost, ObjectStoreDown
from runtime.execution.concurrency import RunSlots
from runtime.execution.heartbeat import ClaimedRun
from runtime.execution.yielding import YieldPolicy
from runtime.store import leases, pool
from runtime.store.tables import objects

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
Retry = Callable[[Callable[[], dict[str, str]]], dict[str, str]]


class ContentWriter:
    """Writes the contents of one claimed run. `retry` calls a function again while Postgres is unreachable."""

    def __init__(
        self, claimed: ClaimedRun, slots: RunSlots, yielding: YieldPolicy, retry: Retry
    ) -> None:
        self._claimed = claimed
        self._slots = slots
        self._yielding = yielding
        self._retry = retry
        self._written: set[str] = set()  # the keys of objects; no key is used for two rows

    def write(self, blobs: tuple[Blob, ...], *, waits: bool = True) -> tuple[Blob, ...]:
        """Write those for the object store, and return all as the step has them. Raises LeaseLost.

        Without `waits`, or when the process ends, a store that is down leaves them to Postgres.
        """
        outside = [blob for blob in blobs if blob.outside]
        while outside:
            try:
                self._write(outside)
                break
            except ObjectStoreDown as exc:
                log.warning("Run %s: its step waits: %s", self._claimed.claim.run, exc)
                if not waits or self._yielding.drains:
                    return tuple(replace(blob, outside=False) for blob in blobs)
                reason = plain(str(exc))
            self._wait(reason)
        return blobs

    def _write(self, blobs: Sequence[Blob]) -> None:
        keys = self._retry(lambda: _reserve(blobs))
        for blob in blobs:
            key = keys.get(blob.digest)
            if key is not None and key not in self._written:
                objects.put(key, blob)
                self._written.add(key)

    def _wait(self, reason: str) -> None:
        """Show the wait, and pause. Raises LeaseLost."""
        with suppress(psycopg.Error), pool.pooled() as connection:
            leases.await_store(connection, self._claimed.claim, reason)
        dispatch.notify_run(self._claimed.claim.run, inbox=False)
        with self._slots.released():
            self._claimed.lost.wait(RETRY_SECONDS)
        if self._claimed.lost.is_set():
            raise LeaseLost


def _reserve(blobs: Sequence[Blob]) -> dict[str, str]:
    with pool.pooled() as connection:
        return objects.reserve(connection, blobs)

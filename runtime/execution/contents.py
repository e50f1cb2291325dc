"""The large contents of a claimed run: results and remembered texts, which its entries name by their hash.

Contents for the object store are written before the step that names them is committed. A store that is down makes the
step wait: the runner keeps the outcome and tries again. A process that must end, and the step of a transactional call,
which holds a transaction open, put the content into Postgres instead.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import psycopg

from runtime import broker
from runtime.core.documents.blobs import Blob
from runtime.core.run.events import Remembered
from runtime.core.values.limits import plain
from runtime.errors import ObjectStoreDown
from runtime.execution.worker import RunPauses, YieldPolicy, retried
from runtime.store import leases, pool
from runtime.store.tables import blobs as stored_blobs
from runtime.store.tables import objects

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0


class RunContents:
    """Writes and reads the contents of one claimed run. Raises LeaseLost once another worker has the run."""

    def __init__(self, pauses: RunPauses, yielding: YieldPolicy) -> None:
        self.pauses = pauses
        self._yielding = yielding
        self._written: set[str] = set()  # the keys of objects; no key is used for two rows

    def write(self, blobs: tuple[Blob, ...], *, waits: bool = True) -> tuple[Blob, ...]:
        """Write those for the object store, and return all as the step has them.

        Without `waits`, or when the process ends, a store that is down leaves them to Postgres.
        """
        outside = [blob for blob in blobs if blob.outside]
        while outside:
            try:
                keys = self._reserve(outside)
                for blob in outside:
                    key = keys.get(blob.digest)
                    if key is not None and key not in self._written:
                        objects.put(key, blob)
                        self._written.add(key)
                break
            except ObjectStoreDown as exc:
                log.warning("Run %s: its step waits: %s", self.pauses.claimed.claim.run, exc)
                if not waits or self._yielding.drains:
                    return tuple(replace(blob, outside=False) for blob in blobs)
                reason = plain(str(exc))
            claim = self.pauses.claimed.claim
            with suppress(psycopg.Error), pool.pooled() as connection:
                leases.await_store(connection, claim, reason)
            broker.notify_run(claim.run, inbox=False)
            self.pauses.pause(RETRY_SECONDS)
        return blobs

    @retried
    def read(self, digest: str) -> Any:
        """Return a result that is stored by its hash. Raises Tampered."""
        with pool.pooled() as connection:
            return stored_blobs.fetch(connection, digest)

    @retried
    def recall(self, memory: Sequence[Remembered]) -> Mapping[str, str]:
        """Return the texts that the run remembers, by digest. Raises Tampered for an altered one."""
        with pool.pooled() as connection:
            return stored_blobs.remembered(connection, [text.digest for text in memory])

    @retried
    def _reserve(self, blobs: Sequence[Blob]) -> dict[str, str]:
        with pool.pooled() as connection:
            return objects.reserve(connection, blobs)

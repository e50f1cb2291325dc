"""Reads the texts that a claimed run remembers of earlier runs of its thread."""

from collections.abc import Mapping, Sequence

from runtime.core.documents.memory import Recall
from runtime.core.events import Remembered
from runtime.execution.commit import StepWriter
from runtime.store import pool
from runtime.store.tables import blobs


def reader(writer: StepWriter) -> Recall:
    """Return the function that reads them, again and again while Postgres is unreachable.

    It raises Tampered for a text that does not match its digest, and LeaseLost.
    """

    def recall(memory: Sequence[Remembered]) -> Mapping[str, str]:
        def read() -> Mapping[str, str]:
            with pool.pooled() as connection:
                return blobs.remembered(connection, [one.digest for one in memory])

        return writer.retry_while_unreachable(read)

    return recall

"""Letting a run out of quarantine: only when everything it would go on from verifies."""

from uuid import UUID

from runtime.core.contents import referred
from runtime.core.continuation import RunStatus, status_of
from runtime.errors import NotQuarantined
from runtime.store import blobs, continuations, journal, runs
from runtime.store.pool import Connection


def readmit(connection: Connection, run: UUID) -> bool:
    """Make a quarantined run due again, inside the caller's transaction.

    Returns whether it is tried alone in its process, as one is that cost workers their life. Raises
    NoSuchRun, NotQuarantined, Tampered, KeyMissing, or NewerSchema.
    """
    row = runs.standing(connection, run)
    if row.status != RunStatus.QUARANTINED:
        raise NotQuarantined
    mark, entries = journal.read(connection, run)
    base = continuations.load(connection, run, row.base, entries.at)
    now = journal.replayed(base, mark, entries, position=row.position, head=row.head)
    blobs.check(connection, referred(now))
    runs.readmit(connection, run, status=status_of(now, held=False))
    return row.isolated

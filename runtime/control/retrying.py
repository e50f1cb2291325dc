"""Writes the entry by which a failed run is tried again, and makes its row due."""

from datetime import datetime
from uuid import UUID

from runtime.core.contents import referred
from runtime.core.continuation import RunStatus, status_of
from runtime.core.events import Retried
from runtime.core.replay import Entry, initial, step
from runtime.errors import NotFailed
from runtime.store import blobs, continuations, journal, runs, signals
from runtime.store.pool import Connection


def retry(connection: Connection, run: UUID, *, by: str, reason: str, at: datetime) -> None:
    """Continue a failed run from where it failed, inside the caller's transaction.

    Raise NoSuchRun, NotFailed, Tampered, KeyMissing, or NewerSchema.
    """
    row = runs.standing(connection, run)
    if row.status != RunStatus.FAILED or row.removed:
        raise NotFailed("removed" if row.removed else row.status)
    base = continuations.load_base(connection, run) or initial(run)
    mark, entries = journal.read(connection, run)
    now = journal.replayed(base, mark, entries, position=row.position, head=row.head)
    blobs.check(connection, referred(now))
    entry = Entry(at=at, events=(Retried(by=by, reason=reason),))
    sealed = journal.seal(run, now.position + 1, now.head, entry)
    now = step(now, entry.events, head=sealed.seal.mac, at=at)
    journal.append_first(connection, sealed)
    signals.forget_cancels(connection, run)
    runs.reopen(connection, run, status=status_of(now, held=False), head=sealed.seal.mac)

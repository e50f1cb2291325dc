"""Retries a failed run from its last entry."""

from uuid import UUID

from runtime.control import access
from runtime.control.transaction import atomic, join, notify
from runtime.core.documents.blobs import blob_refs
from runtime.core.run.continuation import RunStatus, status_of
from runtime.core.run.events import Retried
from runtime.core.run.reducer import Entry, initial, step
from runtime.core.values.limits import MAX_REASON
from runtime.errors import NotFailed, RunArchived
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.queries.runs import RunDetail
from runtime.store import pool, runs
from runtime.store.pool import Connection
from runtime.store.tables import blobs, continuations, journal, signals


def retry(*, run: UUID, reason: object, actor: Actor) -> RunDetail:
    """Continue a failed run from its last entry. Its results, approvals and spending stay.

    Raise, in this order: NoSuchRun; Forbidden (`not_eligible`); InvalidInput naming `reason`; RunArchived;
    NotFailed with the run's status; Tampered, KeyMissing or NewerSchema.
    """
    access.controllable(run, actor, "retry")
    reason_text = access.validate_text(
        "reason", reason, MAX_REASON, required="is required to retry a run"
    )
    with atomic() as connection:
        _reopen(connection, run, Retried(by=actor.person, reason=reason_text))
        join(connection, run, actor)
        wiring.approvals().record_audit(
            run=run, actor=actor, act="retried", detail={"reason": reason_text}
        )
        notify(run, inbox=True)
    return access.readable(run, actor)


def _reopen(connection: Connection, run: UUID, event: Retried) -> None:
    """Verify the run, append the event to its journal, and make its row due."""
    row = runs.locked_row(connection, run)
    if row.archived:
        raise RunArchived
    if row.status != RunStatus.FAILED or row.erased:
        raise NotFailed("removed" if row.erased else row.status)
    base = continuations.load_base(connection, run)
    mark, entries = journal.read(connection, run)
    now = journal.replayed(
        base or initial(run), mark, entries, position=row.position, head=row.head
    )
    blobs.check(connection, blob_refs(now))
    entry = Entry(at=pool.now(connection), events=(event,))
    sealed = journal.sign(run, now.position + 1, now.head, entry)
    now = step(now, entry.events, head=sealed.seal.mac, at=entry.at)
    journal.append_first(connection, sealed)
    signals.delete_cancels(connection, run)
    if base is not None:  # its journal may lose the entries up to the base
        continuations.store(connection, now)
    runs.reopen(
        connection,
        run,
        status=status_of(now, held=False),
        head=sealed.seal.mac,
        base=0 if base is None else now.position,
    )

"""Releases a run from quarantine if its journal, continuation and blobs verify."""

from uuid import UUID

from runtime import broker
from runtime.control import access
from runtime.control.transaction import atomic, notify
from runtime.core.documents.blobs import blob_refs
from runtime.core.run.continuation import RunStatus, status_of
from runtime.core.values.limits import MAX_REASON
from runtime.errors import NotQuarantined
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.queries.runs import RunDetail
from runtime.store import runs
from runtime.store.pool import Connection
from runtime.store.tables import blobs, continuations, journal


def release(*, run: UUID, reason: object, actor: Actor) -> RunDetail:
    """Release a run from quarantine. It continues from its last entry.

    Raise, in this order: NoSuchRun; Forbidden (`not_eligible`); InvalidInput naming `reason`; NotQuarantined;
    Tampered, KeyMissing or NewerSchema.
    """
    access.for_admins(run, actor, "Only admins may release runs from quarantine.")
    required = "is required to release a run from quarantine"
    reason_text = access.validate_text("reason", reason, MAX_REASON, required=required)
    with atomic() as connection:
        make_due(connection, run, actor=actor, reason=reason_text)
    return access.readable(run, actor)


def make_due(connection: Connection, run: UUID, *, actor: Actor, reason: str) -> None:
    """Verify a quarantined run and make it due. One that was isolated is tried alone. `cancel` uses it too.

    Raise NoSuchRun, NotQuarantined, Tampered, KeyMissing, or NewerSchema.
    """
    row = runs.locked_row(connection, run)
    if row.status != RunStatus.QUARANTINED:
        raise NotQuarantined
    mark, entries = journal.read(connection, run)
    base = continuations.load(connection, run, row.continuation_position, entries.text)
    now = journal.replayed(base, mark, entries, position=row.position, head=row.head)
    blobs.check(connection, blob_refs(now))
    runs.release(connection, run, status=status_of(now, held=False))
    wiring.approvals().record_audit(
        run=run, actor=actor, act="readmitted", detail={"reason": reason}
    )
    notify(run, inbox=True, queue=broker.RESUMED, hint=not row.isolated)

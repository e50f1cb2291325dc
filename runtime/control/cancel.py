"""Cancels a run."""

from uuid import UUID

from runtime.control import access, release
from runtime.control.transaction import atomic, notify
from runtime.core.run.continuation import RunStatus
from runtime.core.values.errors import NewerSchema
from runtime.core.values.limits import MAX_REASON
from runtime.errors import Forbidden, KeyMissing, RunEnded, Tampered
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.queries.runs import RunDetail
from runtime.store import gates, runs
from runtime.store.pool import Connection
from runtime.store.tables import signals


def cancel(*, run: UUID, reason: object, actor: Actor) -> RunDetail:
    """Cancel a run: nothing new starts, its gates close, running calls may finish. Repeating it has no effect.

    Cancelling voids a decision that can still be undone. A final decision keeps its gate but starts nothing. Raise, in
    this order: NoSuchRun; Forbidden (`not_eligible`); InvalidInput naming `reason`; RunEnded with the run's status,
    also for a quarantined run that does not verify.
    """
    detail = access.readable(run, actor)
    if not wiring.access().may_cancel(actor, detail.requester):
        raise Forbidden(
            "not_eligible", f"{actor.person} may not cancel runs of {detail.requester}."
        )
    reason_text = access.validate_text(
        "reason", reason, MAX_REASON, required="is required to cancel"
    )
    with atomic() as connection:
        status = runs.locked_row(connection, run).status
        if status != RunStatus.CANCELLING and not _is_asked(connection, run):
            if status == RunStatus.QUARANTINED:
                _release(connection, run, actor, reason_text)
            _cancel(connection, run, actor, reason_text)
            notify(run, inbox=True)
    return access.readable(run, actor)


def _is_asked(connection: Connection, run: UUID) -> bool:
    return signals.last_of(connection, run, signals.CANCEL) is not None


def _cancel(connection: Connection, run: UUID, actor: Actor, reason: str) -> None:
    runs.notify_signal(connection, run)
    withdrawn = signals.withdraw(connection, run)
    gates.close_decided(connection, withdrawn)
    closed = [*withdrawn, *gates.close_open(connection, run)]
    wiring.approvals().close(run=run, gates=closed, actor=actor, reason=reason)
    signals.send_cancel(connection, run=run, by=actor.person, reason=reason)


def _release(connection: Connection, run: UUID, actor: Actor, reason: str) -> None:
    """Release the run from quarantine, so that a worker can end it. Raise RunEnded if the run does not verify."""
    try:
        release.make_due(connection, run, actor=actor, reason=reason)
    except (Tampered, KeyMissing, NewerSchema) as exc:
        raise RunEnded(RunStatus.QUARANTINED) from exc

"""Pauses and resumes a run."""

from uuid import UUID

from runtime.control import access
from runtime.control.transaction import atomic, lock_open, notify
from runtime.core.run.continuation import RunStatus
from runtime.core.values.limits import MAX_REASON
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.queries.runs import RunDetail
from runtime.store import runs
from runtime.store.pool import Connection
from runtime.store.tables import signals


def pause(*, run: UUID, reason: object, actor: Actor) -> RunDetail:
    """Pause a run: running calls finish, nothing new starts until it is resumed. Repeating it has no effect.

    Raise, in this order: NoSuchRun; Forbidden (`not_eligible`); InvalidInput naming `reason`; RunEnded, also
    for a run that is being cancelled or is quarantined.
    """
    access.controllable(run, actor, "pause")
    reason_text = access.validate_text("reason", reason, MAX_REASON)
    with atomic() as connection:
        if not _is_paused(connection, run):
            runs.notify_signal(connection, run)
            signals.send_pause(connection, run=run, by=actor.person, reason=reason_text)
            wiring.approvals().record_audit(
                run=run, actor=actor, act="paused", detail={"reason": reason_text}
            )
            notify(run)
    return access.readable(run, actor)


def resume(*, run: UUID, reason: object, actor: Actor) -> RunDetail:
    """Resume a paused run. It raises as `pause` does, and has no effect on a run that is not paused."""
    access.controllable(run, actor, "resume")
    reason_text = access.validate_text("reason", reason, MAX_REASON)
    with atomic() as connection:
        if _is_paused(connection, run):
            runs.notify_signal(connection, run)
            signals.send_resume(connection, run=run, by=actor.person, reason=reason_text)
            wiring.approvals().record_audit(
                run=run, actor=actor, act="resumed", detail={"reason": reason_text}
            )
            notify(run)
    return access.readable(run, actor)


def _is_paused(connection: Connection, run: UUID) -> bool:
    """Return whether the run is paused once its signals are received. Locks the run's row. Raise RunEnded."""
    status = lock_open(connection, run)
    last_signal = signals.last_of(connection, run, signals.PAUSE, signals.RESUME)
    return status == RunStatus.PAUSED if last_signal is None else last_signal == signals.PAUSE

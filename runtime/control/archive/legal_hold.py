"""Puts runs under a legal hold, so that nothing of them is erased or archived, and lifts it. For admins."""

from uuid import UUID

from runtime.control import access
from runtime.control.transaction import atomic, notify
from runtime.core.values.limits import MAX_REASON
from runtime.errors import NotHeld
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.ports.approvals import HELD, HOLD_LIFTED
from runtime.queries.runs import RunDetail
from runtime.store import runs

_FOR_ADMINS = "Only admins may put runs under a legal hold, or lift it."


def hold(*, run: UUID, reason: object, actor: Actor) -> RunDetail:
    """Put a run under a legal hold. If it is under one already, replace the reason.

    Raise, in this order: NoSuchRun; Forbidden (`not_eligible`); InvalidInput naming `reason`.
    """
    access.for_admins(run, actor, _FOR_ADMINS)
    reason_text = access.validate_text(
        "reason", reason, MAX_REASON, required="is required for a legal hold"
    )
    with atomic() as connection:
        runs.locked_row(connection, run)
        runs.hold(connection, run, by=actor.person, reason=reason_text)
        _record(run, actor, HELD, reason_text)
    return access.readable(run, actor)


def lift(*, run: UUID, reason: object, actor: Actor) -> RunDetail:
    """Lift the legal hold of a run. Raise as `hold` does, then NotHeld."""
    access.for_admins(run, actor, _FOR_ADMINS)
    reason_text = access.validate_text(
        "reason", reason, MAX_REASON, required="is required to lift a legal hold"
    )
    with atomic() as connection:
        runs.locked_row(connection, run)
        if not runs.lift_hold(connection, run):
            raise NotHeld
        _record(run, actor, HOLD_LIFTED, reason_text)
    return access.readable(run, actor)


def _record(run: UUID, actor: Actor, act: str, reason: str) -> None:
    wiring.approvals().record_audit(run=run, actor=actor, act=act, detail={"reason": reason})
    notify(run, hint=False)

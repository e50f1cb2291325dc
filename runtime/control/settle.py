"""Closing a gate with a decision, and undoing it: what approvals call, with their own checks made."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from django.db import transaction

from runtime.control.transaction import notify
from runtime.core.enums import Decision
from runtime.errors import GateNotOpen
from runtime.ports.approvals import Part
from runtime.store import decisions, pool, runs
from runtime.store.tables import gates, signals


def settle(
    *,
    gate: UUID,
    decision: Decision,
    effective_at: datetime | None = None,
    lent: Sequence[Part] = (),
) -> None:
    """Close an open gate with a decision and wake its run, with the parts that the caller lends.

    Until `effective_at` (at once if None) the decision can be undone, and the run does not receive it. In the caller's
    transaction, if there is one. Raise GateNotOpen, with nothing written, if another decision was faster, the run is
    over or a required part writes no row.
    """
    with pool.asking() as connection:
        run = decisions.settle(
            connection, gate=gate, decision=decision, effective_at=effective_at, lent=lent
        )
    notify(run, inbox=True, hint=effective_at is None)


def undo(*, gate: UUID) -> None:
    """Open the gate of a decision again that does not count yet. Raise GateNotOpen once it counts.

    Call it inside the transaction that also undoes what approvals keep of the decision.
    """
    if not transaction.get_connection().in_atomic_block:
        raise transaction.TransactionManagementError("call this inside transaction.atomic()")
    connection = pool.djangos()
    run = gates.find(connection, gate).run
    runs.ring(connection, run)
    if not signals.withdraw(connection, run, gate):
        raise GateNotOpen
    gates.reopen(connection, gate)
    notify(run, inbox=True)

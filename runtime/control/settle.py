"""Settles a gate with a decision, undoes that, and extends its deadline. Approvals call it after their own checks."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from django.db import transaction

from runtime.control.user_actions import atomic, lock_open, notify
from runtime.core.values.enums import Decision
from runtime.errors import GateNotOpen
from runtime.ports.approvals import StatementPart
from runtime.store import gates, pool, runs
from runtime.store.tables import signals


def settle(
    *,
    gate: UUID,
    decision: Decision,
    effective_at: datetime | None = None,
    extra_statements: Sequence[StatementPart] = (),
) -> None:
    """Settle an open gate with a decision and wake its run. `extra_statements` become part of the same statement.

    Until `effective_at` (at once if None) the decision can be undone, and the run does not receive it. Runs in the
    caller's transaction, if there is one. Raise GateNotOpen, with nothing written, if another decision was first, the
    run has ended or a required part writes no row.
    """
    with pool.in_transaction() as connection:
        run = gates.settle(
            connection,
            gate=gate,
            decision=decision,
            effective_at=effective_at,
            extra_statements=extra_statements,
        )
    notify(run, inbox=True, hint=effective_at is None)


def extend(*, run: UUID, document: str) -> None:
    """Send the signed extension of a gate's deadline, in the caller's transaction. Raise RunEnded."""
    with atomic() as connection:
        lock_open(connection, run)
        runs.notify_signal(connection, run)
        signals.send(connection, run, signals.ExtensionSignal(document=document))
        notify(run, inbox=True)


def undo(*, gate: UUID) -> None:
    """Undo a decision before it is final, and open its gate again. Raise GateNotOpen if it is final.

    Call it inside the transaction that also undoes the rows of approvals.
    """
    if not transaction.get_connection().in_atomic_block:
        raise transaction.TransactionManagementError("call this inside transaction.atomic()")
    connection = pool.djangos()
    run = gates.find_run(connection, gate)
    runs.notify_signal(connection, run)
    if not signals.withdraw(connection, run, gate):
        raise GateNotOpen
    gates.reopen(connection, gate)
    notify(run, inbox=True)

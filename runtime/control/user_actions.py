"""What user actions share: who may read and control a run, valid texts, and the transaction with its lock.

Approvals settle a gate here, undo that, and extend its deadline, each after their own checks.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from uuid import UUID

from django.db import transaction

from runtime import broker
from runtime.core.run.continuation import RunStatus
from runtime.core.values.enums import Decision
from runtime.core.values.errors import NotJson
from runtime.core.values.json_values import require_json
from runtime.core.values.limits import MAX_REASON
from runtime.errors import Forbidden, GateNotOpen, InvalidInput, NoSuchRun, RunEnded
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.ports.approvals import StatementPart
from runtime.reads.run_rows import RunDetail, run_detail
from runtime.store import gates, pool, runs
from runtime.store.tables import signals


def require_readable_run(run: UUID, actor: Actor) -> RunDetail:
    """Return a run as the actor may read it. Raise NoSuchRun."""
    detail = run_detail(wiring.resolve_access().select_readable_runs(actor), run)
    if detail is None:
        raise NoSuchRun
    return detail


def require_whole_run(run: UUID, actor: Actor) -> RunDetail:
    """Return a run that the actor may read completely, with its continuations.

    Raise, in this order: Forbidden (`scope`); NoSuchRun; Forbidden (`not_eligible`).
    """
    wiring.resolve_access().require(actor, "runs:read")
    return require_run_for_admins(run, actor, "Continuations are for admins.")


def require_run_for_admins(run: UUID, actor: Actor, refusal: str) -> RunDetail:
    """Return a run that the actor may read completely. Raise NoSuchRun, then Forbidden with this `refusal`."""
    detail = require_readable_run(run, actor)
    if not wiring.resolve_access().may_read_continuations(actor):
        raise Forbidden("not_eligible", refusal)
    return detail


def require_controllable_run(run: UUID, actor: Actor, verb: str) -> RunDetail:
    """Return a run that the actor may control. Raise NoSuchRun, then Forbidden, which says `verb`."""
    detail = require_readable_run(run, actor)
    if not wiring.resolve_access().may_control(actor, detail.requester):
        raise Forbidden(
            "not_eligible", f"{actor.person} may not {verb} runs of {detail.requester}."
        )
    return detail


def validate_text(field: str, value: object, longest: int, *, required: str = "") -> str:
    """Return the text unchanged, because the audit records it verbatim. Raise InvalidInput.

    `required` is the error for a blank text; without it a blank text is valid.
    """
    if not isinstance(value, str):
        raise InvalidInput(field, "must be text")
    if required and not value.strip():
        raise InvalidInput(field, required)
    if len(value) > longest:
        raise InvalidInput(field, f"must have at most {longest} characters")
    try:
        require_json(value)
    except NotJson as exc:
        raise InvalidInput(field, "contains a character that is not text") from exc
    return value


def validate_reason(reason: object, required: str = "") -> str:
    """Return the reason for an action, as `validate_text` does."""
    return validate_text("reason", reason, MAX_REASON, required=required)


@contextmanager
def open_transaction() -> Iterator[pool.Connection]:
    """Open a transaction, or a savepoint in the caller's, and yield its connection."""
    with transaction.atomic():
        yield pool.use_django_connection()


def lock_open(connection: pool.Connection, run: UUID) -> str:
    """Lock the row of a run and return its status. Raise RunEnded if it has ended or is being cancelled."""
    status = runs.lock(connection, run)
    if signals.find_last_kind(connection, run, signals.CANCEL) is not None:
        raise RunEnded(RunStatus.CANCELLING)
    return status


def join(connection: pool.Connection, run: UUID, actor: Actor, *, reviewer: bool = False) -> None:
    """Add a person who steers a run to its origin now, before a worker journals it.

    A `reviewer` may still decide the open requests whose rule says so.
    """
    runs.join(connection, run, actor.person)
    wiring.resolve_approvals().join(run=run, person=actor.person, reviewer=reviewer)


def notify(
    run: UUID, *, inbox: bool = False, queue: str = broker.STICKY, hint: bool = True
) -> None:
    """Send the run's hint and live update after the commit; at once outside a transaction."""

    def send() -> None:
        if hint:
            broker.dispatch(run, queue)
        broker.notify_run(run, inbox=inbox)

    connection = transaction.get_connection()
    if connection.in_atomic_block:
        connection.on_commit(send)
    else:  # without a look at Django's connection, which may be closed
        send()


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
    with pool.join_transaction() as connection:
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
    with open_transaction() as connection:
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
    connection = pool.use_django_connection()
    run = gates.find_run(connection, gate)
    runs.notify_signal(connection, run)
    if not signals.withdraw(connection, run, gate):
        raise GateNotOpen
    gates.reopen(connection, gate)
    notify(run, inbox=True)

"""What people do with one run: cancel, pause, resume, retry, release from quarantine, and put under a legal hold.

Sends the agent of a run a message, or an inquiry about a call that waits at a gate.
"""

from uuid import UUID, uuid4

from runtime import broker, errors
from runtime.control import user_actions
from runtime.control.user_actions import join, lock_open, notify, open_transaction
from runtime.core.documents.blobs import collect_blob_refs, hash_text
from runtime.core.run.continuation import RunStatus, derive_status
from runtime.core.run.events import Retried
from runtime.core.run.reducer import Entry, make_initial_state, step
from runtime.core.values.errors import NewerSchema
from runtime.core.values.limits import MAX_MESSAGE, MAX_UNDELIVERED
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.ports.approvals import HELD, HOLD_LIFTED
from runtime.reads.run_rows import RunDetail
from runtime.store import gates, pool, runs
from runtime.store.tables import blobs, continuations, journal, signals

_ADMINS_HOLD = "Only admins may put runs under a legal hold, or lift it."


def cancel(*, run: UUID, reason: object, actor: Actor) -> RunDetail:
    """Cancel a run: nothing new starts, its gates close, running calls may finish. Repeating it has no effect.

    Cancelling voids a decision that can still be undone. A final decision keeps its gate but starts nothing. Raise, in
    this order: NoSuchRun; Forbidden (`not_eligible`); InvalidInput naming `reason`; RunEnded with the run's status,
    also for a quarantined run that does not verify.
    """
    detail = user_actions.require_readable_run(run, actor)
    if not wiring.resolve_access().may_cancel(actor, detail.requester):
        raise errors.Forbidden(
            "not_eligible", f"{actor.person} may not cancel runs of {detail.requester}."
        )
    reason_text = user_actions.validate_reason(reason, "is required to cancel")
    cancel_for(run=run, reason=reason_text, actor=actor)
    return user_actions.require_readable_run(run, actor)


def cancel_for(*, run: UUID, reason: str, actor: Actor) -> None:
    """Cancel a run for a caller who has checked that the actor may. Raise RunEnded as `cancel` does."""
    with open_transaction() as connection:
        status = runs.lock_row(connection, run).status
        is_asked = signals.find_last_kind(connection, run, signals.CANCEL) is not None
        if status != RunStatus.CANCELLING and not is_asked:
            if status == RunStatus.QUARANTINED:
                try:  # so that a worker can end it
                    make_due(connection, run, actor=actor, reason=reason)
                except (errors.Tampered, errors.KeyMissing, NewerSchema) as exc:
                    raise errors.RunEnded(RunStatus.QUARANTINED) from exc
            runs.notify_signal(connection, run)
            # A decision that could still be undone starts nothing any more.
            withdrawn = signals.withdraw(connection, run)
            gates.close_decided(connection, withdrawn)
            closed = [*withdrawn, *gates.close_open(connection, run)]
            wiring.resolve_approvals().close(run=run, gates=closed, actor=actor, reason=reason)
            cancel = signals.CancelSignal(by=actor.person, reason=reason)
            signals.send(connection, run, cancel)
            notify(run, inbox=True)


def pause(*, run: UUID, reason: object, actor: Actor) -> RunDetail:
    """Pause a run: running calls finish, nothing new starts until it is resumed. Repeating it has no effect.

    Raise, in this order: NoSuchRun; Forbidden (`not_eligible`); InvalidInput naming `reason`; RunEnded, also
    for a run that is being cancelled or is quarantined.
    """
    return _switch(run, reason, actor, pauses=True)


def resume(*, run: UUID, reason: object, actor: Actor) -> RunDetail:
    """Resume a paused run. It raises as `pause` does, and has no effect on a run that is not paused."""
    return _switch(run, reason, actor, pauses=False)


def release(*, run: UUID, reason: object, actor: Actor) -> RunDetail:
    """Release a run from quarantine. It continues from its last entry.

    Raise, in this order: NoSuchRun; Forbidden (`not_eligible`); InvalidInput naming `reason`; NotQuarantined;
    Tampered, KeyMissing or NewerSchema.
    """
    user_actions.require_run_for_admins(run, actor, "Only admins may release runs from quarantine.")
    reason_text = user_actions.validate_reason(
        reason, "is required to release a run from quarantine"
    )
    with open_transaction() as connection:
        make_due(connection, run, actor=actor, reason=reason_text)
    return user_actions.require_readable_run(run, actor)


def make_due(connection: pool.Connection, run: UUID, *, actor: Actor, reason: str) -> None:
    """Verify a quarantined run and make it due. One that was isolated is tried alone. `cancel` uses it too.

    Raise NoSuchRun, NotQuarantined, Tampered, KeyMissing, or NewerSchema.
    """
    row = runs.lock_row(connection, run)
    if row.status != RunStatus.QUARANTINED:
        raise errors.NotQuarantined
    mark, entries = journal.read(connection, run)
    base = continuations.load(connection, run, row.continuation_position, entries.text)
    now = journal.fold_entries(base, mark, entries, position=row.position, head=row.head)
    blobs.check(connection, collect_blob_refs(now))
    runs.release(connection, run, status=derive_status(now, leased=False))
    _audit(run, actor, "readmitted", reason)
    notify(run, inbox=True, queue=broker.RESUMED, hint=not row.isolated)


def retry(*, run: UUID, reason: object, actor: Actor) -> RunDetail:
    """Continue a failed run from its last entry. Its results, approvals and spending stay.

    Raise, in this order: NoSuchRun; Forbidden (`not_eligible`); InvalidInput naming `reason`; RunArchived;
    NotFailed with the run's status; Tampered, KeyMissing or NewerSchema.
    """
    user_actions.require_controllable_run(run, actor, "retry")
    reason_text = user_actions.validate_reason(reason, "is required to retry a run")
    with open_transaction() as connection:
        row = runs.lock_row(connection, run)
        if row.archived:
            raise errors.RunArchived
        if row.status != RunStatus.FAILED or row.erased:
            raise errors.NotFailed("removed" if row.erased else row.status)
        base = continuations.load_base(connection, run)
        mark, entries = journal.read(connection, run)
        now = journal.fold_entries(
            base or make_initial_state(run), mark, entries, position=row.position, head=row.head
        )
        blobs.check(connection, collect_blob_refs(now))
        event = Retried(by=actor.person, reason=reason_text)
        entry = Entry(at=pool.read_clock(connection), events=(event,))
        sealed = journal.sign(run, now.position + 1, now.head, entry)
        now = step(now, entry.events, head=sealed.seal.mac, at=entry.at)
        journal.append_first(connection, sealed)
        signals.delete_cancels(connection, run)
        if base is not None:  # its journal may lose the entries up to the base
            continuations.store(connection, now)
        runs.reopen(
            connection,
            run,
            status=derive_status(now, leased=False),
            head=sealed.seal.mac,
            base=0 if base is None else now.position,
        )
        join(connection, run, actor)
        _audit(run, actor, "retried", reason_text)
        notify(run, inbox=True)
    return user_actions.require_readable_run(run, actor)


def hold(*, run: UUID, reason: object, actor: Actor) -> RunDetail:
    """Put a run under a legal hold. If it is under one already, replace the reason.

    Raise, in this order: NoSuchRun; Forbidden (`not_eligible`); InvalidInput naming `reason`.
    """
    user_actions.require_run_for_admins(run, actor, _ADMINS_HOLD)
    reason_text = user_actions.validate_reason(reason, "is required for a legal hold")
    with open_transaction() as connection:
        runs.lock_row(connection, run)
        runs.hold(connection, run, by=actor.person, reason=reason_text)
        _audit(run, actor, HELD, reason_text)
        notify(run, hint=False)
    return user_actions.require_readable_run(run, actor)


def lift_hold(*, run: UUID, reason: object, actor: Actor) -> RunDetail:
    """Lift the legal hold of a run. Raise as `hold` does, then NotHeld."""
    user_actions.require_run_for_admins(run, actor, _ADMINS_HOLD)
    reason_text = user_actions.validate_reason(reason, "is required to lift a legal hold")
    with open_transaction() as connection:
        runs.lock_row(connection, run)
        if not runs.lift_hold(connection, run):
            raise errors.NotHeld
        _audit(run, actor, HOLD_LIFTED, reason_text)
        notify(run, hint=False)
    return user_actions.require_readable_run(run, actor)


def _switch(run: UUID, reason: object, actor: Actor, *, pauses: bool) -> RunDetail:
    user_actions.require_controllable_run(run, actor, "pause" if pauses else "resume")
    reason_text = user_actions.validate_reason(reason)
    kind = signals.PauseSignal if pauses else signals.ResumeSignal
    with open_transaction() as connection:
        is_paused = lock_open(connection, run) == RunStatus.PAUSED
        last_signal = signals.find_last_kind(connection, run, signals.PAUSE, signals.RESUME)
        if last_signal is not None:  # which the run is still to receive
            is_paused = last_signal == signals.PAUSE
        if is_paused is not pauses:
            runs.notify_signal(connection, run)
            signals.send(connection, run, kind(by=actor.person, reason=reason_text))
            _audit(run, actor, "paused" if pauses else "resumed", reason_text)
            notify(run)
    return user_actions.require_readable_run(run, actor)


def _audit(run: UUID, actor: Actor, act: str, reason: str) -> None:
    wiring.resolve_approvals().record_audit(
        run=run, actor=actor, act=act, detail={"reason": reason}
    )


def send_message(*, run: UUID, text: object, actor: Actor, cut_reply: object = False) -> RunDetail:
    """Send a message to a run: its agent receives it with the next call of its model.

    With `cut_reply` the worker cuts off the reply that the agent's model is giving, so that this call follows at once.
    A reply that is complete by then is kept, and a run that waits for something else keeps waiting.

    Raise, in this order: NoSuchRun; Forbidden (`not_eligible`); InvalidInput naming `cut_reply` or `text`; RunEnded,
    also for a run that is being cancelled or is quarantined; TooManyUndelivered.
    """
    user_actions.require_controllable_run(run, actor, "write to")
    if not isinstance(cut_reply, bool):
        raise errors.InvalidInput("cut_reply", "must be true or false")
    _send(run, text, actor, cuts=cut_reply)
    return user_actions.require_readable_run(run, actor)


def send_as_reviewer(*, run: UUID, text: object, actor: Actor) -> None:
    """Send the message of a person who reviews a request of the run. Approvals checks who may.

    The writer does not join the origin of the open requests whose rule says so; see `runtime.core.run.continuation`.
    Raises as `send_message` does, without the rights.
    """
    _send(run, text, actor, reviewer=True)


def ask_inquiry(*, run: UUID, gate: UUID, by: str, text: str) -> UUID:
    """Send the inquiry in the caller's transaction, and return its id. Raise RunEnded."""
    inquiry = uuid4()
    with open_transaction() as connection:
        lock_open(connection, run)
        runs.notify_signal(connection, run)
        question = signals.InquirySignal(gate=gate, inquiry=inquiry, by=by, text=text)
        signals.send(connection, run, question)
        notify(run)
    return inquiry


def _send(
    run: UUID, text: object, actor: Actor, *, reviewer: bool = False, cuts: bool = False
) -> None:
    message = user_actions.validate_text("text", text, MAX_MESSAGE, required="is required")
    with open_transaction() as connection:
        lock_open(connection, run)
        waiting = signals.count_signals(connection, run, signals.MESSAGE)
        if runs.count_undelivered(connection, run) + waiting >= MAX_UNDELIVERED:
            raise errors.TooManyUndelivered
        runs.notify_signal(connection, run)
        signal = signals.MessageSignal(by=actor.person, text=message, reviewer=reviewer, cuts=cuts)
        signals.send(connection, run, signal)
        join(connection, run, actor, reviewer=reviewer)
        detail: dict[str, str | None] = {
            "digest": hash_text(message),
            **({"cut_reply": "yes"} if cuts else {}),
        }
        wiring.resolve_approvals().record_audit(run=run, actor=actor, act="wrote", detail=detail)
        notify(run)

"""Sends a message to the agent of a run."""

from uuid import UUID

from runtime.control import access
from runtime.control.transaction import atomic, join, lock_open, notify
from runtime.core.documents.blobs import digest_of
from runtime.core.limits import MAX_MESSAGE, MAX_UNDELIVERED
from runtime.errors import TooManyUndelivered
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.queries.runs import RunDetail
from runtime.store import runs
from runtime.store.tables import signals


def send_message(*, run: UUID, text: object, actor: Actor) -> RunDetail:
    """Send a message to a run: its agent receives it with the next call of its model.

    Raise, in this order: NoSuchRun; Forbidden (`not_eligible`); InvalidInput naming `text`; RunEnded, also
    for a run that is being cancelled or is quarantined; TooManyUndelivered.
    """
    access.controllable(run, actor, "write to")
    message = access.text("text", text, MAX_MESSAGE, required="is required")
    with atomic() as connection:
        lock_open(connection, run)
        waiting = signals.number_of(connection, run, signals.MESSAGE)
        if runs.undelivered(connection, run) + waiting >= MAX_UNDELIVERED:
            raise TooManyUndelivered
        runs.notify_signal(connection, run)
        signals.send_message(connection, run=run, by=actor.person, text=message)
        join(connection, run, actor)
        digest = digest_of(message)
        wiring.approvals().record_audit(
            run=run, actor=actor, act="wrote", detail={"digest": digest}
        )
        notify(run)
    return access.readable(run, actor)

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
    _send(run, text, actor)
    return access.readable(run, actor)


def send_as_reviewer(*, run: UUID, text: object, actor: Actor) -> None:
    """Send the message of a person who reviews a request of the run. Approvals checks who may.

    The writer does not join the origin of the open requests whose rule says so; see `runtime.core.machine.origin`.
    Raises as `send_message` does, without the rights.
    """
    _send(run, text, actor, reviewer=True)


def _send(run: UUID, text: object, actor: Actor, *, reviewer: bool = False) -> None:
    message = access.text("text", text, MAX_MESSAGE, required="is required")
    with atomic() as connection:
        lock_open(connection, run)
        waiting = signals.number_of(connection, run, signals.MESSAGE)
        if runs.undelivered(connection, run) + waiting >= MAX_UNDELIVERED:
            raise TooManyUndelivered
        runs.notify_signal(connection, run)
        signals.send_message(connection, run=run, by=actor.person, text=message, reviewer=reviewer)
        join(connection, run, actor, reviewer=reviewer)
        digest = digest_of(message)
        wiring.approvals().record_audit(
            run=run, actor=actor, act="wrote", detail={"digest": digest}
        )
        notify(run)

"""Sends the agent of a run a message, or an inquiry about a call that waits at a gate."""

from uuid import UUID, uuid4

from runtime.control import access
from runtime.control.transaction import atomic, join, lock_open, notify
from runtime.core.documents.blobs import digest_of
from runtime.core.values.limits import MAX_MESSAGE, MAX_UNDELIVERED
from runtime.errors import InvalidInput, TooManyUndelivered
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.reads.runs import RunDetail
from runtime.store import runs
from runtime.store.tables import signals


def send_message(*, run: UUID, text: object, actor: Actor, cut_reply: object = False) -> RunDetail:
    """Send a message to a run: its agent receives it with the next call of its model.

    With `cut_reply` the worker cuts off the reply that the agent's model is giving, so that this call follows at once.
    A reply that is complete by then is kept, and a run that waits for something else keeps waiting.

    Raise, in this order: NoSuchRun; Forbidden (`not_eligible`); InvalidInput naming `cut_reply` or `text`; RunEnded,
    also for a run that is being cancelled or is quarantined; TooManyUndelivered.
    """
    access.controllable(run, actor, "write to")
    if not isinstance(cut_reply, bool):
        raise InvalidInput("cut_reply", "must be true or false")
    _send(run, text, actor, cuts=cut_reply)
    return access.readable(run, actor)


def send_as_reviewer(*, run: UUID, text: object, actor: Actor) -> None:
    """Send the message of a person who reviews a request of the run. Approvals checks who may.

    The writer does not join the origin of the open requests whose rule says so; see `runtime.core.run.continuation`.
    Raises as `send_message` does, without the rights.
    """
    _send(run, text, actor, reviewer=True)


def ask_inquiry(*, run: UUID, gate: UUID, by: str, text: str) -> UUID:
    """Send the inquiry in the caller's transaction, and return its id. Raise RunEnded."""
    inquiry = uuid4()
    with atomic() as connection:
        lock_open(connection, run)
        runs.notify_signal(connection, run)
        signals.send_inquiry(connection, run=run, gate=gate, inquiry=inquiry, by=by, text=text)
        notify(run)
    return inquiry


def _send(
    run: UUID, text: object, actor: Actor, *, reviewer: bool = False, cuts: bool = False
) -> None:
    message = access.validate_text("text", text, MAX_MESSAGE, required="is required")
    with atomic() as connection:
        lock_open(connection, run)
        waiting = signals.number_of(connection, run, signals.MESSAGE)
        if runs.undelivered(connection, run) + waiting >= MAX_UNDELIVERED:
            raise TooManyUndelivered
        runs.notify_signal(connection, run)
        signals.send_message(
            connection, run=run, by=actor.person, text=message, reviewer=reviewer, cuts=cuts
        )
        join(connection, run, actor, reviewer=reviewer)
        detail: dict[str, str | None] = {
            "digest": digest_of(message),
            **({"cut_reply": "yes"} if cuts else {}),
        }
        wiring.approvals().record_audit(run=run, actor=actor, act="wrote", detail=detail)
        notify(run)

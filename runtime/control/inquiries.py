"""Sends a person's inquiry to the agent of a call that waits at a gate. Approvals checks who may ask."""

from uuid import UUID, uuid4

from runtime.control.transaction import atomic, lock_open, notify
from runtime.store import runs
from runtime.store.tables import signals


def ask(*, run: UUID, gate: UUID, by: str, text: str) -> UUID:
    """Send the inquiry in the caller's transaction, and return its id. Raise RunEnded."""
    inquiry = uuid4()
    with atomic() as connection:
        lock_open(connection, run)
        runs.notify_signal(connection, run)
        signals.send_inquiry(connection, run=run, gate=gate, inquiry=inquiry, by=by, text=text)
        notify(run)
    return inquiry

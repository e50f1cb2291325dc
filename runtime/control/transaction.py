"""Helps user actions write: opens the transaction, locks the run's row, and sends messages after the commit."""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from django.db import transaction

from runtime import broker
from runtime.core.run.continuation import RunStatus
from runtime.errors import RunEnded
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.store import pool, runs
from runtime.store.pool import Connection
from runtime.store.tables import signals


@contextmanager
def atomic() -> Iterator[Connection]:
    """Open a transaction, or a savepoint in the caller's, and yield its connection."""
    with transaction.atomic():
        yield pool.djangos()


def lock_open(connection: Connection, run: UUID) -> str:
    """Lock the row of a run and return its status. Raise RunEnded if it has ended or is being cancelled."""
    status = runs.lock(connection, run)
    if signals.last_of(connection, run, signals.CANCEL) is not None:
        raise RunEnded(RunStatus.CANCELLING)
    return status


def join(connection: Connection, run: UUID, actor: Actor, *, reviewer: bool = False) -> None:
    """Add a person who steers a run to its origin now, before a worker journals it.

    A `reviewer` may still decide the open requests whose rule says so.
    """
    runs.join(connection, run, actor.person)
    wiring.approvals().join(run=run, person=actor.person, reviewer=reviewer)


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

"""Sends jobs of workers again, ends lost ones, and deletes old ones."""

import threading

from runtime import broker
from runtime.store.pool import Connection
from runtime.store.tables.jobs import KINDS


def look_after(connection: Connection, stop: threading.Event) -> None:
    """Send jobs again, end lost ones, and delete old ones.

    A job is sent again while its queue has room. Raise ConnectionError without a broker.
    """
    waiting = []
    for kind in KINDS:
        kind.end_lost(connection)
        kind.prune(connection)
        waiting += [(job, kind.name) for job in kind.waiting(connection)]
    if waiting and broker.NEW in broker.queues_with_room():
        broker.send_all(waiting)

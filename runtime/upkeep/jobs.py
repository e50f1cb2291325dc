"""Sends jobs of workers again, ends lost ones, and deletes old ones."""

import threading

from runtime import broker
from runtime.store.pool import Connection
from runtime.store.tables.jobs import edit_previews, prompt_trials, replays

_KINDS = (
    (prompt_trials.JOBS, broker.TRIAL),
    (replays.JOBS, broker.REPLAY),
    (edit_previews.JOBS, broker.PREVIEW),
)


def look_after(connection: Connection, stop: threading.Event) -> None:
    """Send jobs again, end lost ones, and delete old ones.

    A job is sent again while its queue has room. Raise ConnectionError without a broker.
    """
    waiting = []
    for jobs, queue in _KINDS:
        jobs.end_lost(connection)
        jobs.prune(connection)
        waiting += [(job, queue) for job in jobs.waiting(connection)]
    if waiting and broker.NEW in broker.queues_with_room():
        broker.send_all(waiting)

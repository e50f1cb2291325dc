"""Sends jobs of workers again, ends lost ones, and deletes old ones."""

import threading

from runtime.broker import dispatch
from runtime.store.pool import Connection
from runtime.store.tables.jobs import edit_previews, prompt_trials, replays

_KINDS = (
    (prompt_trials.JOBS, dispatch.TRIAL),
    (replays.JOBS, dispatch.REPLAY),
    (edit_previews.JOBS, dispatch.PREVIEW),
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
    if waiting and dispatch.NEW in dispatch.queues_with_room():
        dispatch.send_all(waiting)

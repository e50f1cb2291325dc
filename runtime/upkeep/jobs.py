"""Looks after the jobs of workers: sends them again, ends those whose worker is gone, deletes old ones."""

import threading

from runtime.broker import dispatch
from runtime.store.pool import Connection
from runtime.store.tables.jobs import prompt_trials, replays

_KINDS = ((prompt_trials.JOBS, dispatch.TRIAL), (replays.JOBS, dispatch.REPLAY))


def look_after(connection: Connection, stop: threading.Event) -> None:
    """Do all three once. A lost hint is sent again while its queue has room; raise ConnectionError without a broker."""
    waiting = []
    for jobs, queue in _KINDS:
        jobs.end_lost(connection)
        jobs.prune(connection)
        waiting += [(job, queue) for job in jobs.waiting(connection)]
    if waiting and dispatch.NEW in dispatch.queues_with_room():
        dispatch.send_all(waiting)

"""Looks after trials of prompts: sends them again, ends those whose worker is gone, deletes old ones."""

import threading

from runtime.broker import dispatch
from runtime.store.pool import Connection
from runtime.store.tables import prompt_trials


def look_after(connection: Connection, stop: threading.Event) -> None:
    """Do all three once. A lost hint is sent again while its queue has room; raise ConnectionError without a broker."""
    prompt_trials.end_lost(connection)
    prompt_trials.prune(connection)
    waiting = prompt_trials.waiting(connection)
    if waiting and dispatch.NEW in dispatch.queues_with_room():
        dispatch.send_all([(trial, dispatch.TRIAL) for trial in waiting])

"""Limits how many runs of a process are active at a time.

A run that waits for a model blocks a thread, which costs little. An active run needs the interpreter and Postgres. A
runner holds a slot while it works and releases it while it waits, so a process needs at most as many connections as
slots. For the first millisecond of a wait it keeps its slot if other slots are free. When it releases the slot, it
closes the connections that an author's rules opened through Django.
"""

import queue
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connections

RUN_SLOTS = 8


class RunSlots:
    """The slots of one process for active runs."""

    def __init__(self, number: int = RUN_SLOTS) -> None:
        self._free: queue.SimpleQueue[None] = queue.SimpleQueue()  # waits in C, unlike a semaphore
        for _ in range(number):
            self._free.put(None)

    def any_free(self) -> bool:
        """Return whether no runner waits for a slot."""
        return not self._free.empty()

    @contextmanager
    def acquired(self) -> Iterator[None]:
        """Wait for a slot, and hold it for as long as the block lasts."""
        self._free.get()
        try:
            yield
        finally:
            self._release()

    @contextmanager
    def released(self) -> Iterator[None]:
        """Release the slot for as long as the block lasts, then wait for a free one."""
        self._release()
        try:
            yield
        finally:
            self._free.get()

    def _release(self) -> None:
        connections.close_all()
        self._free.put(None)

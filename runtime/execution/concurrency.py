"""Seats: how many runs of a process are worked on at the same moment, however many wait in it.

A run that waits for a model blocks a thread, which costs little; one that is worked on needs the interpreter
and Postgres. A coordinator sits while it works and gets up while it waits, so a process needs as many
connections as it has seats at most. What an author's rules opened of Django's is closed with the seat.
"""

import queue
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connections

SEATS = 8


class Seats:
    """The seats of one process."""

    def __init__(self, number: int = SEATS) -> None:
        self._free: queue.SimpleQueue[None] = queue.SimpleQueue()  # waits in C, unlike a semaphore
        for _ in range(number):
            self._free.put(None)

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Wait for a seat and sit for as long as the block lasts."""
        self._free.get()
        try:
            yield
        finally:
            self._leave()

    @contextmanager
    def left(self) -> Iterator[None]:
        """Let another run have the caller's seat for as long as the block lasts, and wait for one afterwards."""
        self._leave()
        try:
            yield
        finally:
            self._free.get()

    def _leave(self) -> None:
        connections.close_all()
        self._free.put(None)

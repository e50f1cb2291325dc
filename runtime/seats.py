"""Seats: how many runs of a process are worked on at the same moment, however many wait in it.

A run that waits for a model blocks a thread, which costs little; one that is worked on needs the interpreter
and Postgres. A coordinator sits while it works and gets up while it waits. With a seat goes a Django
connection, lent to the thread for as long as it sits, so that connections are as many as seats at most. It
stays open when somebody else sits down: to log in to Postgres costs more than all that a run asks it.
"""

import os
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from runtime import database

SEATS = 8

_lock = threading.Lock()
_idle: list[BaseDatabaseWrapper] = []  # the last one used is used next, so a quiet process has one
_pid: int | None = None


class Seats:
    """The seats of one process."""

    def __init__(self, number: int = SEATS) -> None:
        self._free: queue.SimpleQueue[int] = queue.SimpleQueue()  # waits in C, unlike a semaphore
        for seat in range(number):
            self._free.put(seat)

    @contextmanager
    def taken(self) -> Iterator["Seat"]:
        """Wait for a seat and sit for as long as the block lasts."""
        seat = Seat(self._free)
        seat.take()
        try:
            yield seat
        finally:
            seat.leave()


class Seat:
    """The seat of the thread that makes it, which asks nothing of the database while it is up."""

    def __init__(self, free: "queue.SimpleQueue[int]") -> None:
        self._free = free
        self._number: int | None = None
        self._own: BaseDatabaseWrapper | None = next(
            iter(connections.all(initialized_only=True)), None
        )

    def take(self) -> None:
        number = self._free.get()
        try:
            lent = _lend()
        except BaseException:
            self._free.put(number)
            raise
        self._number = number
        connections[DEFAULT_DB_ALIAS] = lent

    def leave(self) -> None:
        if self._number is None:
            return  # it could not be taken again
        _take_back(connections[DEFAULT_DB_ALIAS])
        if self._own is None:
            del connections[DEFAULT_DB_ALIAS]
        else:
            connections[DEFAULT_DB_ALIAS] = self._own
        self._free.put(self._number)
        self._number = None

    @contextmanager
    def left(self) -> Iterator[None]:
        """Let somebody else have it for as long as the block lasts, and wait for one afterwards."""
        self.leave()
        try:
            yield
        finally:
            self.take()


def close() -> None:
    """Close the connections that go with seats: at the end of a process, and before a test database is dropped."""
    with _lock:
        if _pid == os.getpid():
            for one in _idle:
                one.close()
        _idle.clear()


def _lend() -> BaseDatabaseWrapper:
    global _pid
    with _lock:
        if _pid != os.getpid():  # a fork must not use what its parent has open
            _idle.clear()
            _pid = os.getpid()
        one = _idle.pop() if _idle else None
    if one is None:
        one = connections.create_connection(DEFAULT_DB_ALIAS)
        one.inc_thread_sharing()
    one.close_if_unusable_or_obsolete()
    if one.connection is not None and one.connection.closed:  # without Django's knowing
        one.close()
    # Its end would lie unread in the socket: to ask Postgres whether it lives is one more way there and back.
    silent = one.connection is not None and not database.has_ended(one.connection)
    one.health_check_done = silent  # type: ignore[attr-defined]  # which the stubs do not know
    return one


def _take_back(one: BaseDatabaseWrapper) -> None:
    with _lock:
        _idle.append(one)

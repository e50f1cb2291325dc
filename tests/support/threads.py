"""Other threads beside the test's own: workers that hold in a call, and transactions that wait for ours."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import connection, connections
from django.utils import timezone

from runtime.ports.effects import Outcome
from tests.support.engine import Rig

WITHIN = 60.0


class Hold:
    """A model, or the body of a tool, that waits until the test lets it go on; it replies as `reply` says."""

    def __init__(self, reply: Outcome | Callable[[Any], Outcome]) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.reply = reply

    def __call__(self, request: Any) -> Outcome:
        self.begun.set()
        assert self.go_on.wait(WITHIN)
        return self.reply(request) if callable(self.reply) else self.reply


def in_thread(act: Callable[[], object]) -> threading.Thread:
    """Start a thread that does it on connections of its own."""

    def work() -> None:
        try:
            act()
        finally:
            connections.close_all()

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def aside(act: Callable[[], object]) -> None:
    """Do it in another thread, and wait for its end."""
    in_thread(act).join()


@contextmanager
def holding(desk: Rig, run: UUID, hold: Hold) -> Iterator[None]:
    """Let a worker advance the run until it holds; after the block it goes on to its end."""
    worker = in_thread(lambda: desk.advance(run))
    try:
        assert hold.begun.wait(WITHIN)
        yield
    finally:
        hold.go_on.set()
        worker.join(WITHIN)
    assert not worker.is_alive()


def wait_until_blocked(statement: str = "") -> None:
    """Wait until a process that runs such a statement is blocked by this transaction."""
    deadline = timezone.now() + timedelta(seconds=WITHIN)
    while timezone.now() < deadline:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_stat_clear_snapshot()")
            cursor.execute(
                "SELECT query FROM pg_stat_activity WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid))"
            )
            if any(statement in row[0] for row in cursor.fetchall()):
                return
    raise AssertionError("no call waits")


def together(works: list[Callable[[], None]], within: float = 120) -> None:
    """Do all of it at once, and wait for the end of all."""
    threads = [in_thread(work) for work in works]
    for thread in threads:
        thread.join(within)
    assert not any(thread.is_alive() for thread in threads)

"""Ends a test that waits for ever, and shows where each of its threads is."""

import faulthandler
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

SECONDS = 240.0  # ten times what the slowest of these tests takes on a busy machine


@contextmanager
def deadline(what: str, seconds: float = SECONDS) -> Iterator[None]:
    """Raise TimeoutError in the block, in the main thread, if it has not ended by then."""

    def fail(*_: object) -> None:
        faulthandler.dump_traceback(sys.__stderr__ or sys.stderr)
        raise TimeoutError(f"{what}: no end after {seconds:g} s; standard error has each thread")

    before = signal.signal(signal.SIGALRM, fail)
    left, _ = signal.setitimer(signal.ITIMER_REAL, seconds)  # of an outer deadline
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, left)

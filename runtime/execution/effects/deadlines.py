"""The deadlines of all effects of a process, kept by one thread."""

import heapq
import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True, order=True)
class _Deadline:
    """One deadline. `callback` is None once it is cancelled."""

    at: float
    number: int
    callback: Callable[[], object] | None = field(compare=False)


class DeadlineTimer:
    """Calls back when a deadline has passed. A callback must be quick and must not raise."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._deadlines: list[_Deadline] = []
        self._numbers = itertools.count()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="deadlines", daemon=True)
        self._thread.start()

    def after(self, seconds: float, callback: Callable[[], object]) -> Callable[[], None]:
        """Call `callback` after these seconds. The returned function cancels it."""
        deadline = _Deadline(time.monotonic() + seconds, next(self._numbers), callback)
        with self._changed:
            heapq.heappush(self._deadlines, deadline)
            if self._deadlines[0] is deadline:
                self._changed.notify()

        def cancel() -> None:
            deadline.callback = None

        return cancel

    def close(self) -> None:
        """Stop the thread. Deadlines that have not passed are dropped."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while (callback := self._next()) is not None:
            callback()

    def _next(self) -> Callable[[], object] | None:
        """Wait for the next deadline and return its callback; None once the timer is closed."""
        with self._changed:
            while not self._closed:
                # Most deadlines are cancelled: the thread does not wake up for them.
                while self._deadlines and self._deadlines[0].callback is None:
                    heapq.heappop(self._deadlines)
                seconds = self._deadlines[0].at - time.monotonic() if self._deadlines else None
                if seconds is None or seconds > 0:
                    self._changed.wait(seconds)
                elif (callback := heapq.heappop(self._deadlines).callback) is not None:
                    return callback
        return None

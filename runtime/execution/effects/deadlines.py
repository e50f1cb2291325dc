"""One thread that calls back when a deadline has passed, however many there are."""

import heapq
import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True, order=True)
class _Due:
    """`act` is None once nobody waits for it any more."""

    at: float
    number: int
    act: Callable[[], object] | None = field(compare=False)


class Alarm:
    """Deadlines of this process. What is called must be quick and must not raise."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due: list[_Due] = []
        self._numbers = itertools.count()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="deadlines", daemon=True)
        self._thread.start()

    def after(self, seconds: float, act: Callable[[], object]) -> Callable[[], None]:
        """Have `act` called in so many seconds, unless the function returned is called before."""
        due = _Due(time.monotonic() + seconds, next(self._numbers), act)
        with self._changed:
            heapq.heappush(self._due, due)
            if self._due[0] is due:
                self._changed.notify()

        def drop() -> None:
            due.act = None

        return drop

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while (act := self._next()) is not None:
            act()

    def _next(self) -> Callable[[], object] | None:
        """What is due, as soon as something is; None once the alarm is closed."""
        with self._changed:
            while not self._closed:
                while self._due and self._due[0].act is None:  # most are: nobody wakes for them
                    heapq.heappop(self._due)
                left = self._due[0].at - time.monotonic() if self._due else None
                if left is None or left > 0:
                    self._changed.wait(left)
                elif (act := heapq.heappop(self._due).act) is not None:
                    return act
        return None

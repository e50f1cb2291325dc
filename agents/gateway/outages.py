"""Which models are out of order, as this worker process has seen: for a while the next ones are asked at once.

A model counts as out when the engine asks the next one in its place, because the attempts at it are used up. After
`REMEMBERED` seconds one call asks it again. If that brings a reply, the outage is over; if not, it is remembered for
as long again, and the call goes on with the next model.
"""

import threading
import time
from collections.abc import Callable, Sequence

REMEMBERED = 60.0  # seconds


class Outages:
    """`clock` gives seconds that only grow."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}
        self._lock = threading.Lock()

    def note(self, model: str) -> None:
        """The attempts at this model are used up. What is known already is remembered no longer than before."""
        with self._lock:
            self._until.setdefault(model, self._clock() + REMEMBERED)

    def end(self, model: str) -> None:
        """It replied."""
        with self._lock:
            self._until.pop(model, None)

    def choose(self, models: Sequence[str]) -> str:
        """The first that is not out, or whose time to be asked again has come; the first of all if every one is out."""
        with self._lock:
            now = self._clock()
            for model in models:
                until = self._until.get(model)
                if until is None:
                    return model
                if until <= now:
                    self._until[model] = now + REMEMBERED  # for every call but this one
                    return model
        return models[0]

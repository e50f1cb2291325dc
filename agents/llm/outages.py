"""Remembers which models did not answer this worker process, so that calls try the next one at once.

A model counts as out of order when its attempts are used up and the engine calls the next one. After `REMEMBERED`
seconds one call tries it again. A reply ends the outage. A failure extends it by the same time, and the call tries
the next model.
"""

import threading
import time
from collections.abc import Callable, Sequence

REMEMBERED = 60.0  # seconds


class Outages:
    """The models out of order. `clock` must be monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}
        self._lock = threading.Lock()

    def begin(self, model: str) -> None:
        """Record that the attempts at this model are used up. A known outage is not extended."""
        with self._lock:
            self._until.setdefault(model, self._clock() + REMEMBERED)

    def end(self, model: str) -> None:
        """Record that this model replied."""
        with self._lock:
            self._until.pop(model, None)

    def choose(self, models: Sequence[str]) -> str:
        """Choose the first model that works or may be tried again; the first of all if none does."""
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

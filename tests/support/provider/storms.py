"""Weather of a provider: which requests fail while a storm lasts, the same for the same seed."""

import random
import threading
import time

from tests.support.provider.faults import Fault

TROUBLE = (Fault.RATE_LIMIT, Fault.SERVER_ERROR, Fault.CUT, Fault.SHORT)


class Storm:
    """Fails so large a share of all requests with one of `kinds`, drawn from `seed`."""

    def __init__(self, share: float, *, seed: int = 0, kinds: tuple[Fault, ...] = TROUBLE) -> None:
        self._random = random.Random(seed)
        self._share = share
        self._kinds = kinds
        self._lock = threading.Lock()

    def next(self) -> Fault | None:
        """Return the fault of the next request, or None."""
        with self._lock:
            strikes = self._random.random() < self._share
            kind = self._random.choice(self._kinds)
            return kind if strikes else None


class Closed:
    """A provider that, after refusing a request, refuses all requests for so many `seconds`.

    It refuses `share` of the first `draws` requests that arrive while it is open, and none after those.
    """

    def __init__(self, *, seconds: float, share: float, draws: int, seed: int) -> None:
        drawn = random.Random(seed)
        self._seconds = seconds
        self._draws = [drawn.random() < share for _ in range(draws)]
        self._closed_until = 0.0
        self._lock = threading.Lock()

    def next(self) -> Fault | None:
        with self._lock:
            now = time.monotonic()
            if now >= self._closed_until:
                if not self._draws or not self._draws.pop():
                    return None
                self._closed_until = now + self._seconds
            return Fault.RATE_LIMIT


Weather = Storm | Closed

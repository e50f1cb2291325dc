"""When this process must not take a run whose lease has run out: its owner had no chance to renew it.

That is so for one lease after Postgres was out of reach, be it a restart or the promotion of a standby, and after
Postgres' clock went further than ours: it was set ahead, or the machine slept. The owners met the same trouble.
"""

import time
from datetime import datetime

from runtime.store.leases import lease_seconds


class Calm:
    """One process's view. Not over for one lease from each time it begins."""

    def __init__(self) -> None:
        self._until = 0.0
        self._seen: tuple[datetime, float] | None = None

    def begin(self) -> None:
        """Postgres was out of reach."""
        self._until = time.monotonic() + lease_seconds()
        self._seen = None

    def look(self, at: datetime) -> None:
        """Compare Postgres' clock, which says `at`, with ours since the last look."""
        # Not clock.elapsed(): time that the machine slept is to be noticed.
        now = time.monotonic()
        if self._seen is not None:
            ahead = (at - self._seen[0]).total_seconds() - (now - self._seen[1])
            if ahead > lease_seconds() / 2:  # less takes no lease from an owner that renews it
                self._until = now + lease_seconds()
        self._seen = (at, now)

    @property
    def over(self) -> bool:
        return time.monotonic() >= self._until

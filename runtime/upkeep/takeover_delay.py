"""Delays the take-over of runs whose worker's lease is over, because that worker may have had no chance to renew it.

A sweeper waits for one lease after it connects, as after a restart of Postgres or the promotion of a standby, and after
Postgres' clock went further than its own: it was set ahead, or the machine slept. The workers met the same trouble.
"""

import time
from datetime import datetime

from runtime.store.leases import lease_seconds


class TakeoverDelay:
    """The delay of one process: one lease from each time it begins."""

    def __init__(self) -> None:
        self._until = 0.0
        self._seen: tuple[datetime, float] | None = None

    def begin(self) -> None:
        """Begin anew: this process has connected."""
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

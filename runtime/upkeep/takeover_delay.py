"""Delays the release of runs whose worker's lease expired, because the worker may have been unable to renew it.

A sweeper waits for one lease period after it connects, as after a restart of Postgres or the promotion of a standby.
It also waits if Postgres' clock advanced more than its own: it was set ahead, or the machine slept. The workers had the
same problem.
"""

import time
from datetime import datetime

from runtime.store.leases import lease_seconds


class TakeoverDelay:
    """The delay of one sweeper process: one lease period from each `begin`."""

    def __init__(self) -> None:
        self._until = 0.0
        self._observed: tuple[datetime, float] | None = None

    def begin(self) -> None:
        """Restart the delay, because this process has connected."""
        self._until = time.monotonic() + lease_seconds()
        self._observed = None

    def observe(self, at: datetime) -> None:
        """Compare how far Postgres' clock, now at `at`, and our clock advanced since the last call."""
        # time.monotonic() and not clock.elapsed(): time in which the machine slept must show.
        now = time.monotonic()
        if self._observed is not None:
            ahead = (at - self._observed[0]).total_seconds() - (now - self._observed[1])
            if (
                ahead > lease_seconds() / 2
            ):  # a smaller jump expires no lease that its worker renews
                self._until = now + lease_seconds()
        self._observed = (at, now)

    @property
    def over(self) -> bool:
        """Return whether expired leases may be taken over."""
        return time.monotonic() >= self._until

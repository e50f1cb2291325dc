"""Measures elapsed time for leases, including time in which the machine slept."""

import time

# On Linux CLOCK_MONOTONIC stops while the machine sleeps, so a lease that expired meanwhile would seem valid.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def elapsed() -> float:
    """Return the seconds since a fixed time before this process began."""
    return time.clock_gettime(_CLOCK)

"""Elapsed time of this process, for leases: it also counts the time for which the machine slept."""

import time

# Linux stops CLOCK_MONOTONIC while the machine sleeps; a lease that ran out meanwhile would look as good as before.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def elapsed() -> float:
    """Seconds since some moment before this process began."""
    return time.clock_gettime(_CLOCK)

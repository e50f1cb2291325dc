"""A wall clock that is wrong, in a process whose environment says so; its steady clock is right."""

import os
from datetime import UTC, datetime, timedelta

import time_machine

HOURS = "ABEYANCE_FAULTS_CLOCK"


def set_wrong() -> None:
    """Set the clock of this process ahead, or behind, by the hours of its environment, if it has any."""
    if hours := os.environ.get(HOURS):
        there = datetime.now(UTC) + timedelta(hours=float(hours))
        time_machine.travel(there, tick=True).start()

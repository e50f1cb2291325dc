"""A wall clock that is wrong, in a process that is told so by its environment; its steady clock goes on as it did."""

import os
from datetime import UTC, datetime, timedelta

import time_machine

HOURS = "ABEYANCE_FAULTS_CLOCK"


def set_wrong() -> None:
    """Have the clock of this process be as many hours ahead, or behind, as it was told, if it was."""
    if hours := os.environ.get(HOURS):
        there = datetime.now(UTC) + timedelta(hours=float(hours))
        time_machine.travel(there, tick=True).start()

"""The old name of `agents.tools.timers`. It works for one release, with a warning."""

import logging

from agents.tools.timers import sleep_until, wait_for

__all__ = ["sleep_until", "wait_for"]

logging.getLogger(__name__).warning(
    "agents.tools.waits is now agents.tools.timers; the old name goes with the next release"
)

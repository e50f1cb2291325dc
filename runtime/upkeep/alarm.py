"""Records when a loop of the sweeper last completed, and logs its failures.

Each loop has its own alarm. The log has the error, and `/readyz` names a late loop. A transient error, such as a
restart of Postgres, is logged as a warning until the loop is late; every other error is critical.
"""

import logging
import time

from runtime.errors import ObjectStoreDown
from runtime.reads.workers import LATE_SECONDS
from runtime.store import pool

log = logging.getLogger(__name__)

NOTE_SECONDS = 3.0  # between two writes of the row, by a loop that completes every second
NOTE = """
    INSERT INTO runtime_sweeperloop (name, done_at, took) VALUES (%s, clock_timestamp(), %s)
    ON CONFLICT (name) DO UPDATE SET done_at = clock_timestamp(), took = EXCLUDED.took
"""


class Note:
    """The row with the time at which a loop last completed or a process was last alive."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._written_at = float("-inf")

    def write(self, connection: pool.Connection, took: float | None = None) -> None:
        """Write the time and the seconds of the round, unless they were written less than NOTE_SECONDS ago."""
        now = time.monotonic()
        if now - self._written_at >= NOTE_SECONDS:
            connection.execute(NOTE, (self._name, took))
            self._written_at = now


class Alarm:
    """The alarm of one loop in one process."""

    def __init__(self, loop: str) -> None:
        self._loop = loop
        self._done_at = time.monotonic()
        self._note = Note(loop)

    def record_success(self, connection: pool.Connection, *, took: float | None = None) -> None:
        """Record that the loop completed, in `took` seconds."""
        self._done_at = time.monotonic()
        self._note.write(connection, took)

    def log_failure(self, exc: Exception, *, again: float) -> None:
        """Log that the loop failed and will try again in `again` seconds."""
        passing = isinstance(exc, ConnectionError | ObjectStoreDown) or pool.is_passing(exc)
        for_seconds = time.monotonic() - self._done_at
        if passing and for_seconds < LATE_SECONDS[self._loop]:
            log.warning("%s interrupted; again in %g s: %s", self._loop, again, exc)
        else:
            log.critical(
                "%s failed, last done %d s ago; again in %g s: %s",
                *(self._loop, for_seconds, again, exc),
                exc_info=None if passing else exc,
            )

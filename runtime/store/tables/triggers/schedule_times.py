"""Stores the times of schedules: one row for each schedule and time, so no time starts two runs.

The transaction that starts a run writes the row of its time. A row that waits starts its run later.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from runtime.store.pool import Connection

_TIME = """
    t.at, t.kind, CASE WHEN t.state = 'started' AND r.ended_at IS NOT NULL THEN r.status ELSE t.state END,
    t.run, t.reason, t.by, r.status
"""
# Of a time that failed: as the row says, or as its run says, if that has ended since. Each has an index.
_FAILED = ("t.state = 'failed'", "t.state = 'started' AND r.status = 'failed'")


class Kind(StrEnum):
    """Where a time comes from."""

    SCHEDULED = "scheduled"  # from the rhythm of the schedule
    BACKFILL = "backfill"  # a person back-filled a range of past times
    MANUAL = "manual"  # a person pressed "Run now"


class State(StrEnum):
    """What became of a time. A run that has ended gives it the status of the run."""

    WAITING = "waiting"  # it starts its run after an earlier one
    STARTED = "started"  # its run has started
    SKIPPED = "skipped"  # it started no run, for the reason
    FAILED = "failed"  # its run could not be started, for the reason; or the run failed


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRow:
    """One time, with its run and the status of that. `by` is the person of a manual time or a back-fill."""

    at: datetime
    kind: str
    state: str
    run: UUID | None
    reason: str
    by: str | None
    run_status: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTimes:
    """How many times of a schedule have a run that has not ended, or wait; `own` are not of a back-fill."""

    running: int
    own_running: int
    waiting: int
    own_waiting: int


def insert(
    connection: Connection,
    schedule: UUID,
    at: datetime,
    *,
    kind: Kind,
    state: State,
    reason: str = "",
    by: str | None = None,
    token: str | None = None,
) -> bool:
    """Add the row of a time. Return False if the schedule has one for it."""
    done = connection.execute(
        """
        INSERT INTO runtime_scheduletime (schedule, at, kind, state, reason, by, token)
        VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING
        """,
        (schedule, at, kind, state, reason, by, token),
    )
    return done.rowcount == 1


def write(
    connection: Connection,
    schedule: UUID,
    at: datetime,
    *,
    state: State,
    run: UUID | None = None,
    reason: str = "",
) -> None:
    """Say what became of a time. The caller has locked the row of the schedule."""
    connection.execute(
        """
        UPDATE runtime_scheduletime SET state = %s, run = %s, reason = %s
        WHERE schedule = %s AND at = %s
        """,
        (state, run, reason, schedule, at),
    )


def open_times(connection: Connection, schedule: UUID) -> OpenTimes:
    """Give the rows of ended runs the status of the run, and count the rows that are left."""
    connection.execute(
        """
        UPDATE runtime_scheduletime t SET state = r.status FROM runtime_run r
        WHERE t.schedule = %s AND t.state = 'started' AND r.id = t.run AND r.ended_at IS NOT NULL
        """,
        (schedule,),
    )
    row = connection.execute(
        """
        SELECT count(*) FILTER (WHERE state = 'started'),
            count(*) FILTER (WHERE state = 'started' AND kind <> 'backfill'),
            count(*) FILTER (WHERE state = 'waiting'),
            count(*) FILTER (WHERE state = 'waiting' AND kind <> 'backfill')
        FROM runtime_scheduletime WHERE schedule = %s AND state IN ('started', 'waiting')
        """,
        (schedule,),
    ).fetchone()
    assert row is not None  # an aggregate has one row
    return OpenTimes(running=row[0], own_running=row[1], waiting=row[2], own_waiting=row[3])


def waiting(connection: Connection, schedule: UUID, most: int) -> list[TimeRow]:
    """Return the times that wait, in the order in which they start: a back-fill comes last."""
    return _times(
        connection,
        "t.schedule = %s AND t.state = 'waiting' ORDER BY t.kind = 'backfill', t.at LIMIT %s",
        (schedule, most),
    )


def skip_waiting(connection: Connection, schedule: UUID, reason: str) -> None:
    """Skip all times that wait."""
    connection.execute(
        """
        UPDATE runtime_scheduletime SET state = 'skipped', reason = %s
        WHERE schedule = %s AND state = 'waiting'
        """,
        (reason, schedule),
    )


def read(connection: Connection, schedule: UUID, at: datetime) -> TimeRow | None:
    """Return one time, None without a row."""
    return next(iter(_times(connection, "t.schedule = %s AND t.at = %s", (schedule, at))), None)


def newest(
    connection: Connection, schedule: UUID, most: int, before: datetime | None = None
) -> list[TimeRow]:
    """Return the newest times, or the newest before one, the newest first."""
    return _times(
        connection,
        "t.schedule = %s AND (%s::timestamptz IS NULL OR t.at < %s) ORDER BY t.at DESC LIMIT %s",
        (schedule, before, before, most),
    )


def last_failure(connection: Connection, schedule: UUID) -> TimeRow | None:
    """Return the newest time that failed, None if none did."""
    found = [
        one
        for failed in _FAILED
        for one in _times(
            connection, f"t.schedule = %s AND {failed} ORDER BY t.at DESC LIMIT 1", (schedule,)
        )
    ]
    return max(found, key=lambda one: one.at, default=None)


def _times(connection: Connection, which: str, parameters: tuple[Any, ...]) -> list[TimeRow]:
    rows = connection.execute(
        f"""
        SELECT {_TIME} FROM runtime_scheduletime t LEFT JOIN runtime_run r ON r.id = t.run
        WHERE {which}
        """,
        parameters,
    )
    names = ("at", "kind", "state", "run", "reason", "by", "run_status")
    return [TimeRow(**dict(zip(names, row, strict=True))) for row in rows.fetchall()]

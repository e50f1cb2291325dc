"""Stores the times and events of triggers: one row for each of them and trigger, so none of them starts two runs.

A time has its microseconds since 1970 as its number, an event that of its received event. The transaction that
receives an event writes a row for each active trigger of its name. The transaction that starts a run writes that to
the row.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from runtime.store import pool
from runtime.store.pool import Connection
from runtime.store.tables.received_events import KEPT_DAYS, PRUNED

MAX_NUMBER = 2**63 - 1  # of an occurrence, in Postgres

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ROW = """
    o.number, o.kind, o.at, o.by, e.event_id, e.source, o.key,
    CASE WHEN o.state = 'started' AND r.ended_at IS NOT NULL THEN r.status ELSE o.state END,
    o.run, o.reason, r.status
"""
# The row failed, or its run has failed since. Each has an index.
_FAILED = ("o.state = 'failed'", "o.state = 'started' AND r.status = 'failed'")


class OccurrenceKind(StrEnum):
    """Where an occurrence comes from."""

    SCHEDULED = "scheduled"  # a time from the rhythm of a schedule
    BACKFILL = "backfill"  # a past time that a person back-filled
    MANUAL = "manual"  # a person pressed "Run now"
    EVENT = "event"  # an event was received


class OccurrenceState(StrEnum):
    """The state of an occurrence. Once its run has ended, it is the status of the run."""

    NEW = "new"  # an event that no sweeper has looked at
    WAITING = "waiting"  # its run starts later
    STARTED = "started"  # its run has started
    WOKEN = "woken"  # it ended a wait of its run
    SKIPPED = "skipped"  # it started no run, for the reason
    REFUSED = "refused"  # it is a file or an entry that is not an event, for the reason
    FAILED = "failed"  # its run could not be started, for the reason; or the run failed


@dataclass(frozen=True, slots=True, kw_only=True)
class OccurrenceRow:
    """A time or an event, with its run and the status of that.

    `by` is the person of a manual time or a back-fill. A time has no `id` and `source`, nor has an event that is gone.
    """

    number: int
    kind: str
    at: datetime
    by: str | None
    id: str | None
    source: str | None
    key: str
    state: str
    run: UUID | None
    reason: str
    run_status: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTimes:
    """How many times of a schedule have a run that has not ended, or wait; `own` are not of a back-fill."""

    running: int
    own_running: int
    waiting: int
    own_waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingEvent:
    """An event that waits, and when the first event of its key that waits was received."""

    number: int
    key: str
    at: datetime
    first_at: datetime


def compute_number(at: datetime) -> int:
    """Return the number of a time."""
    return (at - _EPOCH) // timedelta(microseconds=1)


def add_time(
    connection: Connection,
    trigger: UUID,
    at: datetime,
    *,
    kind: OccurrenceKind,
    state: OccurrenceState,
    reason: str = "",
    by: str | None = None,
    token: str | None = None,
) -> bool:
    """Add the row of a time. Return False if the schedule has one for it."""
    row = {"trigger": trigger, "number": compute_number(at), "at": at, "kind": kind, "state": state}
    texts = {"reason": reason, "by": by, "token": token}
    return pool.insert(connection, "runtime_occurrence", {**row, **texts})


def offer(connection: Connection, number: int, name: str) -> int:
    """Add a row for each active trigger of events of this name. Return how many."""
    return connection.execute(
        """
        INSERT INTO runtime_occurrence (trigger, number, at, kind, state)
        SELECT t.id, e.seq, e.at, 'event', 'new' FROM runtime_trigger t, runtime_receivedevent e
        WHERE t.kind = 'event' AND t.event = %s AND t.state = 'active' AND e.seq = %s
        """,
        (name, number),
    ).rowcount


def add_event(connection: Connection, trigger: UUID, number: int) -> None:
    """Add a row for this trigger alone."""
    connection.execute(
        """
        INSERT INTO runtime_occurrence (trigger, number, at, kind, state)
        SELECT %s, seq, at, 'event', 'new' FROM runtime_receivedevent WHERE seq = %s
        """,
        (trigger, number),
    )


def write(connection: Connection, trigger: UUID, number: int, **columns: Any) -> None:
    """Change columns of a row. The caller has locked the row of the trigger."""
    assignments = ", ".join(f"{name} = %({name})s" for name in columns)
    connection.execute(
        f"UPDATE runtime_occurrence SET {assignments} WHERE trigger = %(trigger)s AND number = %(number)s",
        {**columns, "trigger": trigger, "number": number},
    )


def read(connection: Connection, trigger: UUID, number: int) -> OccurrenceRow | None:
    """Return one occurrence of a trigger, or None."""
    number = min(number, MAX_NUMBER)
    return next(
        iter(_list_rows(connection, "o.trigger = %s AND o.number = %s", trigger, number)), None
    )


def list_newest(
    connection: Connection, trigger: UUID, limit: int, before: int | None = None
) -> list[OccurrenceRow]:
    """Return the newest occurrences, or the newest before one, the newest first."""
    before = None if before is None else max(0, min(before, MAX_NUMBER))
    condition = (
        "o.trigger = %s AND (%s::bigint IS NULL OR o.number < %s) ORDER BY o.number DESC LIMIT %s"
    )
    return _list_rows(connection, condition, trigger, before, before, limit)


def find_last_failure(connection: Connection, trigger: UUID) -> OccurrenceRow | None:
    """Return the newest occurrence that failed, None if none did."""
    rows = [
        row
        for failed in _FAILED
        for row in _list_rows(
            connection, f"o.trigger = %s AND {failed} ORDER BY o.number DESC LIMIT 1", trigger
        )
    ]
    return max(rows, key=lambda row: row.number, default=None)


def open_times(connection: Connection, trigger: UUID) -> OpenTimes:
    """Count the times of a schedule whose run has not ended, and those that wait."""
    _settle(connection, trigger)
    row = connection.execute(
        """
        SELECT count(*) FILTER (WHERE state = 'started'),
            count(*) FILTER (WHERE state = 'started' AND kind <> 'backfill'),
            count(*) FILTER (WHERE state = 'waiting'),
            count(*) FILTER (WHERE state = 'waiting' AND kind <> 'backfill')
        FROM runtime_occurrence WHERE trigger = %s AND state IN ('started', 'waiting')
        """,
        (trigger,),
    ).fetchone()
    assert row is not None  # an aggregate has one row
    return pool.decode_row(OpenTimes, row)


def list_waiting_times(connection: Connection, trigger: UUID, limit: int) -> list[OccurrenceRow]:
    """Return the times that wait, in the order in which they start: a back-fill comes last."""
    condition = (
        "o.trigger = %s AND o.state = 'waiting' ORDER BY o.kind = 'backfill', o.number LIMIT %s"
    )
    return _list_rows(connection, condition, trigger, limit)


def find_trigger_of_run(connection: Connection, run: UUID) -> UUID | None:
    """Return the trigger that started a run, None if a person did."""
    row = connection.execute(
        """
        SELECT trigger FROM runtime_occurrence WHERE run = %s AND state <> 'woken'
        ORDER BY kind = 'event', number LIMIT 1
        """,
        (run,),
    ).fetchone()
    return None if row is None else row[0]


def list_new_events(connection: Connection, trigger: UUID, limit: int) -> list[int]:
    """Return the first new events, in order."""
    rows = connection.execute(
        """
        SELECT number FROM runtime_occurrence WHERE trigger = %s AND state = 'new'
        ORDER BY number LIMIT %s
        """,
        (trigger, limit),
    )
    return [number for (number,) in rows.fetchall()]


def list_waiting_events(
    connection: Connection, trigger: UUID, of_key: int, limit: int, without: list[str]
) -> list[WaitingEvent]:
    """Return the first events of each key that wait, in order; with `of_key` 0 the last one. `without` are keys."""
    rows = connection.execute(
        """
        SELECT number, key, at, first_at FROM (
            SELECT number, key, at, min(at) OVER of_key AS first_at,
                row_number() OVER (PARTITION BY key ORDER BY number) AS from_first,
                row_number() OVER (PARTITION BY key ORDER BY number DESC) AS from_last
            FROM runtime_occurrence WHERE trigger = %(trigger)s AND state = 'waiting'
                AND key <> ALL(%(without)s)
            WINDOW of_key AS (PARTITION BY key)) w
        WHERE CASE WHEN %(of_key)s = 0 THEN from_last = 1 ELSE from_first <= %(of_key)s END
        ORDER BY number LIMIT %(limit)s
        """,
        {"trigger": trigger, "of_key": of_key, "limit": limit, "without": without},
    )
    return [pool.decode_row(WaitingEvent, row) for row in rows.fetchall()]


def count(connection: Connection, trigger: UUID, *states: OccurrenceState) -> int:
    """Count the occurrences in one of these states."""
    row = connection.execute(
        "SELECT count(*) FROM runtime_occurrence WHERE trigger = %s AND state = ANY(%s)",
        (trigger, list(states)),
    ).fetchone()
    assert row is not None  # an aggregate has one row
    return int(row[0])


def list_wakeable_events(
    connection: Connection, trigger: UUID, agent: str, name: str, limit: int
) -> list[tuple[int, list[UUID]]]:
    """Return the first events that wait for which runs of the agent wait, with these runs, found by their key."""
    return connection.execute(
        """
        WITH open AS MATERIALIZED (
            SELECT w.run_id AS run, w.match, k.key
            FROM runtime_waitingcall w JOIN runtime_run r ON r.id = w.run_id,
                unnest(ARRAY[r.business_key, r.id::text]) AS k (key)
            WHERE w.event = %(name)s AND r.agent = %(agent)s AND k.key IS NOT NULL)
        SELECT o.number, array_agg(DISTINCT open.run)
        FROM runtime_occurrence o
            JOIN open ON open.key = o.key
            JOIN runtime_receivedevent e ON e.seq = o.number AND e.data::jsonb @> open.match
        WHERE o.trigger = %(trigger)s AND o.state = 'waiting'
        GROUP BY o.number ORDER BY o.number LIMIT %(limit)s
        """,
        {"trigger": trigger, "agent": agent, "name": name, "limit": limit},
    ).fetchall()


def list_keys_of_live_runs(connection: Connection, trigger: UUID, agent: str) -> list[str]:
    """Return the keys of events that wait of which a run of the agent has not ended."""
    rows = connection.execute(
        """
        WITH live AS MATERIALIZED (
            SELECT k.key FROM runtime_run r, unnest(ARRAY[r.business_key, r.id::text]) AS k (key)
            WHERE r.agent = %s AND r.ended_at IS NULL)
        SELECT DISTINCT key FROM runtime_occurrence
        WHERE trigger = %s AND state = 'waiting' AND key IN (SELECT key FROM live)
        """,
        (agent, trigger),
    )
    return [key for (key,) in rows.fetchall()]


def list_waiting_keys(connection: Connection, trigger: UUID) -> list[str]:
    """Return the keys of the events that wait."""
    rows = connection.execute(
        "SELECT DISTINCT key FROM runtime_occurrence WHERE trigger = %s AND state = 'waiting'",
        (trigger,),
    )
    return [key for (key,) in rows.fetchall()]


def skip_before(connection: Connection, trigger: UUID, before: datetime, reason: str) -> None:
    """Skip events that wait and came before this time."""
    connection.execute(
        """
        UPDATE runtime_occurrence SET state = 'skipped', reason = %s
        WHERE trigger = %s AND state = 'waiting' AND at < %s
        """,
        (reason, trigger, before),
    )


def skip_waiting(
    connection: Connection,
    trigger: UUID,
    reason: str,
    *,
    key: str | None = None,
    before: int | None = None,
) -> None:
    """Skip occurrences that have not started: all, or the events of a key before another one."""
    connection.execute(
        """
        UPDATE runtime_occurrence SET state = 'skipped', reason = %(reason)s
        WHERE trigger = %(trigger)s AND state IN ('new', 'waiting')
            AND (%(before)s::bigint IS NULL
                OR state = 'waiting' AND key = %(key)s AND number < %(before)s)
        """,
        {"trigger": trigger, "reason": reason, "key": key, "before": before},
    )


def count_running_by_key(connection: Connection, trigger: UUID) -> dict[str, int]:
    """Count the runs that have not ended by the key of their event."""
    _settle(connection, trigger)
    rows = connection.execute(
        """
        SELECT key, count(DISTINCT run) FROM runtime_occurrence
        WHERE trigger = %s AND state = 'started' GROUP BY key
        """,
        (trigger,),
    )
    return dict(rows.fetchall())


def list_recent_starts(connection: Connection, trigger: UUID, limit: int) -> list[datetime]:
    """Return when the newest runs were started, the oldest first."""
    rows = connection.execute(
        """
        SELECT started_at FROM runtime_occurrence
        WHERE trigger = %s AND started_at IS NOT NULL ORDER BY started_at DESC LIMIT %s
        """,
        (trigger, limit),
    )
    return [at for (at,) in reversed(rows.fetchall())]


def prune(connection: Connection) -> int:
    """Delete some rows of old events that wait for nothing. Returns how many."""
    return connection.execute(
        """
        DELETE FROM runtime_occurrence o USING (
            SELECT trigger, number FROM runtime_occurrence
            WHERE kind = 'event' AND at < clock_timestamp() - %s * interval '1 day'
                AND state NOT IN ('new', 'waiting')
            ORDER BY at LIMIT %s FOR UPDATE SKIP LOCKED) old
        WHERE o.trigger = old.trigger AND o.number = old.number
        """,
        (KEPT_DAYS, PRUNED),
    ).rowcount


def _settle(connection: Connection, trigger: UUID) -> None:
    """Give the rows of ended runs the status of the run."""
    connection.execute(
        """
        UPDATE runtime_occurrence o SET state = r.status FROM runtime_run r
        WHERE o.trigger = %s AND o.state = 'started' AND r.id = o.run AND r.ended_at IS NOT NULL
        """,
        (trigger,),
    )


def _list_rows(connection: Connection, condition: str, *parameters: object) -> list[OccurrenceRow]:
    rows = connection.execute(
        f"""
        SELECT {_ROW} FROM runtime_occurrence o
            LEFT JOIN runtime_receivedevent e ON e.seq = o.number AND o.kind = 'event'
            LEFT JOIN runtime_run r ON r.id = o.run
        WHERE {condition}
        """,
        parameters,
    )
    return [pool.decode_row(OccurrenceRow, row) for row in rows.fetchall()]

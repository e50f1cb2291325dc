"""Stores the events of triggers: one row for each trigger and event, so no event starts two runs of a trigger.

The transaction that receives an event writes a row for each active trigger of its name. The transaction that starts
its run writes that to the row.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from runtime.store.pool import Connection
from runtime.store.tables.external_events import KEPT_DAYS, PRUNED

MAX_NUMBER = 2**63 - 1  # of an event, in Postgres

_ROW = """
    t.event, e.event_id, e.source, t.at, t.key,
    CASE WHEN t.state = 'started' AND r.ended_at IS NOT NULL THEN r.status ELSE t.state END,
    t.run, t.reason, r.status
"""


class State(StrEnum):
    """The state of an event. Once its run has ended, it is the status of the run."""

    NEW = "new"  # no sweeper has looked at it
    WAITING = "waiting"  # its run starts later
    STARTED = "started"  # its run has started
    WOKEN = "woken"  # it ended a wait of its run
    SKIPPED = "skipped"  # it started no run, for the reason
    REFUSED = "refused"  # it is a file or an entry that is no event, for the reason
    FAILED = "failed"  # its run could not be started, for the reason; or the run failed


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRow:
    """One event of a trigger, with its run and the status of that."""

    number: int
    id: str
    source: str
    at: datetime
    key: str
    state: str
    run: UUID | None
    reason: str
    run_status: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingEvent:
    """An event that waits, and when the first event of its key that waits was received."""

    number: int
    key: str
    at: datetime
    first_at: datetime


def offer(connection: Connection, number: int, name: str) -> int:
    """Add a row for each active trigger of events of this name. Return how many."""
    return connection.execute(
        """
        INSERT INTO runtime_triggerevent (trigger, event, at)
        SELECT t.id, e.seq, e.at FROM runtime_trigger t, runtime_receivedevent e
        WHERE t.event = %s AND t.state = 'active' AND e.seq = %s
        """,
        (name, number),
    ).rowcount


def add(connection: Connection, trigger: UUID, number: int) -> None:
    """Add a row for this trigger alone."""
    connection.execute(
        """
        INSERT INTO runtime_triggerevent (trigger, event, at)
        SELECT %s, seq, at FROM runtime_receivedevent WHERE seq = %s
        """,
        (trigger, number),
    )


def new(connection: Connection, trigger: UUID, most: int) -> list[int]:
    """Return the first new events, in order."""
    rows = connection.execute(
        """
        SELECT event FROM runtime_triggerevent WHERE trigger = %s AND state = 'new'
        ORDER BY event LIMIT %s
        """,
        (trigger, most),
    )
    return [number for (number,) in rows.fetchall()]


def write(connection: Connection, trigger: UUID, number: int, **columns: Any) -> None:
    """Change columns of a row. The caller has locked the row of the trigger."""
    places = ", ".join(f"{name} = %({name})s" for name in columns)
    connection.execute(
        f"UPDATE runtime_triggerevent SET {places} WHERE trigger = %(trigger)s AND event = %(event)s",
        {**columns, "trigger": trigger, "event": number},
    )


def waiting(
    connection: Connection, trigger: UUID, of_key: int, most: int, without: list[str]
) -> list[WaitingEvent]:
    """Return the first events of each key that wait, in order; with `of_key` 0 the last one. `without` are keys."""
    rows = connection.execute(
        """
        SELECT event, key, at, first_at FROM (
            SELECT event, key, at, min(at) OVER of_key AS first_at,
                row_number() OVER (PARTITION BY key ORDER BY event) AS place,
                row_number() OVER (PARTITION BY key ORDER BY event DESC) AS from_last
            FROM runtime_triggerevent WHERE trigger = %(trigger)s AND state = 'waiting'
                AND key <> ALL(%(without)s)
            WINDOW of_key AS (PARTITION BY key)) w
        WHERE CASE WHEN %(of_key)s = 0 THEN from_last = 1 ELSE place <= %(of_key)s END
        ORDER BY event LIMIT %(most)s
        """,
        {"trigger": trigger, "of_key": of_key, "most": most, "without": without},
    )
    return [
        WaitingEvent(number=number, key=key, at=at, first_at=first)
        for number, key, at, first in rows.fetchall()
    ]


def waiting_count(connection: Connection, trigger: UUID) -> int:
    """Count the events that wait."""
    row = connection.execute(
        "SELECT count(*) FROM runtime_triggerevent WHERE trigger = %s AND state = 'waiting'",
        (trigger,),
    ).fetchone()
    assert row is not None  # an aggregate has one row
    return int(row[0])


def open_count(connection: Connection, trigger: UUID) -> int:
    """Count the events that have not started, also those that no sweeper has looked at."""
    row = connection.execute(
        "SELECT count(*) FROM runtime_triggerevent WHERE trigger = %s AND state IN ('new', 'waiting')",
        (trigger,),
    ).fetchone()
    assert row is not None  # an aggregate has one row
    return int(row[0])


def wakeable(
    connection: Connection, trigger: UUID, agent: str, name: str, most: int
) -> list[tuple[int, list[UUID]]]:
    """Return the first events that wait for which runs of the agent wait, with these runs, found by their key."""
    return connection.execute(
        """
        WITH open AS MATERIALIZED (
            SELECT w.run_id AS run, w.match, k.key
            FROM runtime_waitingcall w JOIN runtime_run r ON r.id = w.run_id,
                unnest(ARRAY[r.business_key, r.id::text]) AS k (key)
            WHERE w.event = %(name)s AND r.agent = %(agent)s AND k.key IS NOT NULL)
        SELECT t.event, array_agg(DISTINCT o.run)
        FROM runtime_triggerevent t
            JOIN open o ON o.key = t.key
            JOIN runtime_receivedevent e ON e.seq = t.event AND e.data::jsonb @> o.match
        WHERE t.trigger = %(trigger)s AND t.state = 'waiting'
        GROUP BY t.event ORDER BY t.event LIMIT %(most)s
        """,
        {"trigger": trigger, "agent": agent, "name": name, "most": most},
    ).fetchall()


def keys_of_live_runs(connection: Connection, trigger: UUID, agent: str) -> list[str]:
    """Return the keys of events that wait of which a run of the agent has not ended."""
    rows = connection.execute(
        """
        WITH live AS MATERIALIZED (
            SELECT k.key FROM runtime_run r, unnest(ARRAY[r.business_key, r.id::text]) AS k (key)
            WHERE r.agent = %s AND r.ended_at IS NULL)
        SELECT DISTINCT key FROM runtime_triggerevent
        WHERE trigger = %s AND state = 'waiting' AND key IN (SELECT key FROM live)
        """,
        (agent, trigger),
    )
    return [key for (key,) in rows.fetchall()]


def keys_of_waiting(connection: Connection, trigger: UUID) -> list[str]:
    """Return the keys of the events that wait."""
    rows = connection.execute(
        "SELECT DISTINCT key FROM runtime_triggerevent WHERE trigger = %s AND state = 'waiting'",
        (trigger,),
    )
    return [key for (key,) in rows.fetchall()]


def skip_before(connection: Connection, trigger: UUID, before: datetime, reason: str) -> None:
    """Skip events that wait and came before this time."""
    connection.execute(
        """
        UPDATE runtime_triggerevent SET state = 'skipped', reason = %s
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
    """Skip events that have not started: all, or those of a key before another event."""
    connection.execute(
        """
        UPDATE runtime_triggerevent SET state = 'skipped', reason = %(reason)s
        WHERE trigger = %(trigger)s AND state IN ('new', 'waiting')
            AND (%(before)s::bigint IS NULL
                OR state = 'waiting' AND key = %(key)s AND event < %(before)s)
        """,
        {"trigger": trigger, "reason": reason, "key": key, "before": before},
    )


def running(connection: Connection, trigger: UUID) -> dict[str, int]:
    """Give the rows of ended runs the status of the run, and count the other runs by key."""
    connection.execute(
        """
        UPDATE runtime_triggerevent t SET state = r.status FROM runtime_run r
        WHERE t.trigger = %s AND t.state = 'started' AND r.id = t.run AND r.ended_at IS NOT NULL
        """,
        (trigger,),
    )
    rows = connection.execute(
        """
        SELECT key, count(DISTINCT run) FROM runtime_triggerevent
        WHERE trigger = %s AND state = 'started' GROUP BY key
        """,
        (trigger,),
    )
    return dict(rows.fetchall())


def starts(connection: Connection, trigger: UUID, most: int) -> list[datetime]:
    """Return when the newest runs were started, the oldest first."""
    rows = connection.execute(
        """
        SELECT started_at FROM runtime_triggerevent
        WHERE trigger = %s AND started_at IS NOT NULL ORDER BY started_at DESC LIMIT %s
        """,
        (trigger, most),
    )
    return [at for (at,) in reversed(rows.fetchall())]


def newest(
    connection: Connection, trigger: UUID, most: int, before: int | None = None
) -> list[EventRow]:
    """Return the newest events of a trigger, or the newest before one, the newest first."""
    before = None if before is None else max(0, min(before, MAX_NUMBER))
    return _rows(
        connection,
        "t.trigger = %s AND (%s::bigint IS NULL OR t.event < %s) ORDER BY t.event DESC LIMIT %s",
        (trigger, before, before, most),
    )


def read(connection: Connection, trigger: UUID, number: int) -> EventRow | None:
    """Return one event of a trigger, None without a row."""
    number = min(number, MAX_NUMBER)
    return next(iter(_rows(connection, "t.trigger = %s AND t.event = %s", (trigger, number))), None)


def prune(connection: Connection) -> int:
    """Delete some rows of old events that wait for nothing. Returns how many."""
    return connection.execute(
        """
        DELETE FROM runtime_triggerevent t USING (
            SELECT trigger, event FROM runtime_triggerevent
            WHERE at < clock_timestamp() - %s * interval '1 day' AND state NOT IN ('new', 'waiting')
            ORDER BY at LIMIT %s FOR UPDATE SKIP LOCKED) old
        WHERE t.trigger = old.trigger AND t.event = old.event
        """,
        (KEPT_DAYS, PRUNED),
    ).rowcount


def _rows(connection: Connection, which: str, parameters: tuple[Any, ...]) -> list[EventRow]:
    rows = connection.execute(
        f"""
        SELECT {_ROW} FROM runtime_triggerevent t
            LEFT JOIN runtime_receivedevent e ON e.seq = t.event
            LEFT JOIN runtime_run r ON r.id = t.run
        WHERE {which}
        """,
        parameters,
    )
    names = ("number", "id", "source", "at", "key", "state", "run", "reason", "run_status")
    return [EventRow(**dict(zip(names, row, strict=True))) for row in rows.fetchall()]

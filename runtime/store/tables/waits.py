"""Stores the calls that wait for an external event, and the data that each requires.

The step in which a call begins to wait writes its row. The step in which the wait times out or the run ends deletes
the row. Otherwise the transaction that delivers the event deletes it and writes a signal instead. Both lock the run's
row first, and the step requires the signal count that the event has increased, so there is one outcome.
"""

import json
from dataclasses import dataclass
from uuid import UUID

from runtime.core.run.events import WaitStarted
from runtime.store import pool
from runtime.store.pool import Connection

# Parts of the step statement: waits that begin with it, and waits that have ended.
OPEN = """
    INSERT INTO runtime_waitingcall (run_id, frame, call, event, match, until)
    SELECT run.id, w.frame, w.call, w.event, w.match::jsonb, w.until
    FROM run, unnest(%(w_frames)s::text[], %(w_calls)s::text[], %(w_events)s::text[],
        %(w_matches)s::text[], %(w_untils)s::timestamptz[])
        AS w(frame, call, event, match, until)
"""
CLOSE = """
    DELETE FROM runtime_waitingcall
    USING run, unnest(%(w_ended_frames)s::text[], %(w_ended_calls)s::text[]) AS o(frame, call)
    WHERE runtime_waitingcall.run_id = run.id AND runtime_waitingcall.frame = o.frame
        AND runtime_waitingcall.call = o.call
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventWait:
    """A call that waits for an event."""

    run: UUID
    frame: str
    call: str


def build_wait_parameters(
    began: tuple[WaitStarted, ...], ended: tuple[tuple[str, str], ...]
) -> dict[str, object]:
    """Return the parameters of the parts."""
    return {
        "w_frames": [wait.frame for wait in began],
        "w_calls": [wait.call for wait in began],
        "w_events": [wait.event for wait in began],
        "w_matches": [json.dumps(wait.match) for wait in began],
        "w_untils": [wait.until for wait in began],
        "w_ended_frames": [frame for frame, _ in ended],
        "w_ended_calls": [call for _, call in ended],
    }


def list_matching_waits(
    connection: Connection, event: str, data: str, *, limit: int, run: UUID | None = None
) -> list[EventWait]:
    """List the calls that wait for an event of this name and whose conditions its data (JSON) contains, by run.

    With `run`, list those of this run alone.
    """
    rows = connection.execute(
        """
        SELECT run_id, frame, call FROM runtime_waitingcall WHERE event = %s AND %s::jsonb @> match
            AND run_id = coalesce(%s, run_id)
        ORDER BY run_id, frame, call LIMIT %s
        """,
        (event, data, run, limit),
    )
    return [pool.decode_row(EventWait, row) for row in rows.fetchall()]


def complete(connection: Connection, wait: EventWait) -> bool:
    """End a wait with its event. The caller has locked the run's row. False if it has already ended."""
    cursor = connection.execute(
        "DELETE FROM runtime_waitingcall WHERE run_id = %s AND frame = %s AND call = %s",
        (wait.run, wait.frame, wait.call),
    )
    return cursor.rowcount == 1


def list_open_waits(connection: Connection, run: UUID) -> set[tuple[str, str]]:
    """Return frame and call of every wait of a run."""
    rows = connection.execute(
        "SELECT frame, call FROM runtime_waitingcall WHERE run_id = %s", (run,)
    )
    return {(frame, call) for frame, call in rows.fetchall()}

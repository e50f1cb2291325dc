"""Replays of runs with today's code: who asked, how far the worker is, and where the run would go another way.

A replay is a job. It has contents of its run, so it is deleted with them, and nothing of a run that was erased
meanwhile is stored.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.rows import class_row

from runtime.store.pool import Connection
from runtime.store.tables.jobs.queue import Jobs

MAX_LISTED = 20  # replays of one run
JOBS = Jobs(
    table="runtime_runreplay",
    lost="The worker did not end the replay in time, or ended itself. Start another replay.",
    of_erased="EXISTS (SELECT FROM runtime_run WHERE runtime_run.id = run AND removed_at IS NOT NULL)",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredReplay:
    """A replay. `state` is queued, running, done or failed; `problem` says why it ended early; `by` is a person.

    A process of `host` has compared `compared` of `entries`. `result` is a JSON text, empty before its end.
    """

    id: UUID
    run: UUID
    agent: str
    by: str
    at: datetime
    state: str
    ended_at: datetime | None
    host: str
    process: int | None
    compared: int
    entries: int
    result: str
    problem: str

    @property
    def found(self) -> dict[str, Any]:
        """The divergences and the numbers of steps compared; empty if nothing was compared."""
        found: dict[str, Any] = json.loads(self.result or "{}")
        return found


_COLUMNS = """
    id, run, by, at, state, ended_at, host, process, compared, entries, result, problem,
    (SELECT run.agent FROM runtime_run run WHERE run.id = runtime_runreplay.run) AS agent
"""


def add(connection: Connection, replay: UUID, *, run: UUID, by: str, token: str | None) -> bool:
    """Add a queued replay. Return False if one of this run has not ended."""
    done = connection.execute(
        """
        INSERT INTO runtime_runreplay (id, run, by, token, state)
        VALUES (%(id)s, %(run)s, %(by)s, %(token)s, 'queued')
        ON CONFLICT (run) WHERE ended_at IS NULL DO NOTHING
        """,
        {"id": replay, "run": run, "by": by, "token": token},
    )
    return done.rowcount == 1


def find(connection: Connection, replay: UUID) -> StoredReplay | None:
    """Return a replay, None if there is none."""
    return next(iter(_rows(connection, _COLUMNS, "id = %(replay)s", replay=replay)), None)


def listed(connection: Connection, run: UUID) -> list[StoredReplay]:
    """Return the replays of a run without their results, the newest first."""
    return _rows(
        connection, _COLUMNS.replace(" result,", " '' AS result,"), "run = %(run)s", run=run
    )


def begin(connection: Connection, replay: UUID, *, host: str, process: int) -> StoredReplay | None:
    """Begin a queued replay in this process. Return None if it was begun already."""
    if not JOBS.begin(connection, replay):
        return None
    connection.execute(
        "UPDATE runtime_runreplay SET host = %(host)s, process = %(process)s WHERE id = %(replay)s",
        {"host": host, "process": process, "replay": replay},
    )
    return find(connection, replay)


def note(connection: Connection, replay: UUID, *, compared: int, entries: int) -> None:
    """Note how many entries were compared so far."""
    connection.execute(
        """
        UPDATE runtime_runreplay SET compared = %(compared)s, entries = %(entries)s
        WHERE id = %(replay)s AND state = 'running'
        """,
        {"compared": compared, "entries": entries, "replay": replay},
    )


def save(connection: Connection, replay: UUID, found: Mapping[str, Any]) -> None:
    """Store the result, unless the run was erased meanwhile.

    The lock of the run's row orders this before or after an erasure, which deletes the replay.
    """
    connection.execute(
        """
        WITH kept AS MATERIALIZED (
            SELECT run.id FROM runtime_run run JOIN runtime_runreplay replay ON replay.run = run.id
            WHERE replay.id = %(replay)s AND run.removed_at IS NULL FOR SHARE OF run)
        UPDATE runtime_runreplay SET result = %(result)s
        WHERE id = %(replay)s AND state = 'running' AND EXISTS (SELECT FROM kept)
        """,
        {"replay": replay, "result": json.dumps(found)},
    )


def delete_for_run(connection: Connection, run: UUID) -> None:
    """Delete the replays of a run, inside the transaction that erases or archives it."""
    connection.execute("DELETE FROM runtime_runreplay WHERE run = %(run)s", {"run": run})


def _rows(connection: Connection, columns: str, where: str, **values: object) -> list[StoredReplay]:
    with connection.cursor(row_factory=class_row(StoredReplay)) as cursor:
        cursor.execute(
            f"SELECT {columns} FROM runtime_runreplay WHERE {where}"
            f" ORDER BY at DESC LIMIT {MAX_LISTED}",
            values,
        )
        return cursor.fetchall()

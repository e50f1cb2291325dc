"""Trials of versions of prompts on recorded runs: who asked, how far it is, and the recorded and the tried replies.

A trial is a job. It has contents of its runs, so it is deleted with the first of them, and nothing of a run that was
erased meanwhile is stored.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.rows import class_row

from runtime.store.pool import Connection
from runtime.store.tables.jobs.queue import Jobs

MAX_RUNS = 5  # of one trial
MAX_LISTED = 20  # trials of one version
JOBS = Jobs(
    table="runtime_prompttrial",
    lost="The worker ended before the trial did. Start another trial.",
    of_erased="EXISTS (SELECT FROM runtime_run WHERE runtime_run.id = ANY(runs) AND removed_at IS NOT NULL)",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTrial:
    """A trial. `state` is queued, running, done or failed; `problem` says why it ended early; `by` is a person.

    `wanted` is a number of runs. `result` is a JSON text with the runs that were tried so far.
    """

    id: UUID
    prompt: str
    number: int
    wanted: int
    by: str
    at: datetime
    state: str
    ended_at: datetime | None
    result: str
    problem: str

    @property
    def runs(self) -> list[dict[str, Any]]:
        """The runs that were tried so far, with their replies."""
        found: list[dict[str, Any]] = json.loads(self.result)
        return found


_COLUMNS = "id, prompt, number, wanted, by, at, state, ended_at, result, problem"


def add(
    connection: Connection,
    trial: UUID,
    *,
    prompt: str,
    number: int,
    wanted: int,
    by: str,
    token: str | None,
) -> bool:
    """Add a queued trial. Return False if one of this prompt has not ended."""
    done = connection.execute(
        """
        INSERT INTO runtime_prompttrial (id, prompt, number, wanted, by, token, state)
        VALUES (%(id)s, %(prompt)s, %(number)s, %(wanted)s, %(by)s, %(token)s, 'queued')
        ON CONFLICT (prompt) WHERE ended_at IS NULL DO NOTHING
        """,
        {
            "id": trial,
            "prompt": prompt,
            "number": number,
            "wanted": wanted,
            "by": by,
            "token": token,
        },
    )
    return done.rowcount == 1


def find(connection: Connection, trial: UUID) -> StoredTrial | None:
    """Return a trial, None if there is none."""
    return next(iter(_rows(connection, _COLUMNS, "id = %(trial)s", trial=trial)), None)


def listed(connection: Connection, prompt: str, number: int) -> list[StoredTrial]:
    """Return the trials of a version without their results, the newest first."""
    return _rows(
        connection,
        _COLUMNS.replace("result", "'[]' AS result"),
        "prompt = %(prompt)s AND number = %(number)s",
        prompt=prompt,
        number=number,
    )


def begin(connection: Connection, trial: UUID) -> StoredTrial | None:
    """Begin a queued trial. Return None if it was begun already."""
    return find(connection, trial) if JOBS.begin(connection, trial) else None


def save(
    connection: Connection, trial: UUID, runs: Sequence[UUID], found: Sequence[dict[str, Any]]
) -> bool:
    """Store the runs that were tried so far, and their replies.

    Return False, with nothing stored, if one of them was erased or archived, or the trial has ended. The lock of the
    runs' rows orders this before or after an erasure, which deletes the trial.
    """
    done = connection.execute(
        """
        WITH kept AS MATERIALIZED (
            SELECT id FROM runtime_run
            WHERE id = ANY(%(runs)s) AND removed_at IS NULL AND archived_at IS NULL FOR SHARE)
        UPDATE runtime_prompttrial SET runs = %(runs)s, result = %(result)s
        WHERE id = %(trial)s AND state = 'running'
            AND (SELECT count(*) FROM kept) = cardinality(%(runs)s::uuid[])
        """,
        {"trial": trial, "runs": list(runs), "result": json.dumps(found)},
    )
    return done.rowcount == 1


def delete_for_run(connection: Connection, run: UUID) -> None:
    """Delete the trials with contents of a run, inside the transaction that erases or archives it."""
    connection.execute(
        "DELETE FROM runtime_prompttrial WHERE %(run)s = ANY(runs)",
        {"run": run},
    )


def _rows(connection: Connection, columns: str, where: str, **values: object) -> list[StoredTrial]:
    with connection.cursor(row_factory=class_row(StoredTrial)) as cursor:
        cursor.execute(
            f"SELECT {columns} FROM runtime_prompttrial WHERE {where}"
            f" ORDER BY at DESC LIMIT {MAX_LISTED}",
            values,
        )
        return cursor.fetchall()

"""Stores the jobs that people give to workers: replays of runs, trials of prompts, previews of edits.

Each kind has a table of its own. One worker begins a job, once. The sweeper sends a job again that no worker has begun,
ends one whose worker is gone, and deletes old ones. A job has contents of its runs, so it is deleted with the first of
them, and nothing of a run that was erased meanwhile is stored.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any, Generic, TypeVar
from uuid import UUID

from psycopg.rows import class_row

from runtime.core.values.enums import CallPreview
from runtime.core.values.json_values import encode_canonical
from runtime.errors import Tampered
from runtime.keyring import purposes, signatures
from runtime.keyring.signatures import Seal
from runtime.store import pool
from runtime.store.pool import Connection

RESEND_SECONDS = 10  # after which a job that no worker has begun is sent again
MAX_RESENT = 100  # jobs of a kind at once
LOST_SECONDS = 180  # after its start; a live worker stops its work after 120
KEPT_DAYS = 30
MAX_LISTED = 20
MAX_RUNS = 5  # of one trial


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """A job for the person `by`. `state` is queued, running, done or failed; `problem` says why it ended early.

    `result` is a JSON text, empty while there is none.
    """

    id: UUID
    by: str
    at: datetime
    state: str
    ended_at: datetime | None
    result: str
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRow(JobRow):
    """The replay of a run with today's code. A process of `host` has compared `compared` of `entries`."""

    run: UUID
    agent: str
    host: str
    process: int | None
    compared: int
    entries: int

    @property
    def comparison(self) -> dict[str, Any]:
        """The divergences and the numbers of steps compared; empty if nothing was compared."""
        return dict(json.loads(self.result or "{}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRow(JobRow):
    """The trial of a version of a prompt on `wanted` recorded runs."""

    prompt: str
    number: int
    wanted: int

    @property
    def runs(self) -> list[dict[str, Any]]:
        """The runs that were tried so far, with the recorded and the tried replies."""
        return list(json.loads(self.result or "[]"))


@dataclass(frozen=True, slots=True, kw_only=True)
class EditPreviewRow(JobRow):
    """A preview of the call at a gate with the arguments `args`, a JSON text.

    The worker signs the arguments together with the result, because a person decides by it.
    """

    run: UUID
    gate: UUID
    agent: str
    args: str
    mac: str
    key_id: str

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments; sealed ones are sealed."""
        return dict(json.loads(self.args))

    def preview(self) -> CallPreview:
        """Return what the worker found out about exactly these arguments. Raise Tampered or KeyMissing."""
        seal = Seal(mac=self.mac, key_id=self.key_id)
        if not signatures.verify(purposes.REQUESTS, seal, *self._signed_parts(self.result)):
            raise Tampered(f"the preview {self.id} does not verify")
        return CallPreview(**json.loads(self.result))

    def build_signed_columns(self, preview: CallPreview) -> dict[str, str]:
        """Return the columns of the result, signed."""
        result = json.dumps(asdict(preview))
        seal = signatures.seal(purposes.REQUESTS, *self._signed_parts(result))
        return {"result": result, "mac": seal.mac, "key_id": seal.key_id}

    def _signed_parts(self, result: str) -> tuple[str, ...]:
        args = encode_canonical(self.arguments).decode()
        return ("preview of an edit", str(self.id), str(self.gate), args, result)


R = TypeVar("R", bound=JobRow)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobKind(Generic[R]):
    """The jobs of one kind. Their `table` has id, state, by, at, started_at, ended_at, result and problem.

    Workers receive them under `name`. `lost` is the problem of a job that its worker did not end in time. `of_run` is
    the condition in SQL that a job has contents of a run. `on_conflict` says what a new job does to one that is in its
    way. With `reads_archive` a job may have contents of archived runs.
    """

    name: str
    table: str
    row: type[R]
    lost: str
    of_run: str = "run = {}"
    on_conflict: str = "DO NOTHING"
    reads_archive: bool = False

    def add(self, connection: Connection, job: UUID, **columns: object) -> bool:
        """Add a queued job. Return False if one that has not ended is in its way."""
        row = {"id": job, "state": "queued", **columns}
        return pool.insert(connection, self.table, row, self.on_conflict)

    def find(self, connection: Connection, job: UUID) -> R | None:
        """Return a job, None if there is none, or no more."""
        return next(iter(self._rows(connection, {"id": job})), None)

    def list_newest(self, connection: Connection, **columns: object) -> list[R]:
        """Return the newest jobs with these columns, without their results, the newest first."""
        return self._rows(connection, columns, result="'' AS result")

    def begin(self, connection: Connection, job: UUID) -> bool:
        """Begin a queued job. Return False if it was begun already, or does not exist."""
        cursor = connection.execute(
            f"UPDATE {self.table} SET state = 'running', started_at = clock_timestamp()"
            " WHERE id = %(job)s AND state = 'queued'",
            {"job": job},
        )
        return cursor.rowcount == 1

    def note(self, connection: Connection, job: UUID, **columns: object) -> None:
        """Note how far a job is that is running."""
        connection.execute(
            f"UPDATE {self.table} SET {_build_assignments(columns)} WHERE id = %(job)s AND state = 'running'",
            {"job": job, **columns},
        )

    def save(
        self, connection: Connection, job: UUID, of: Sequence[UUID], **columns: object
    ) -> bool:
        """Store the result of a job that is running, with contents `of` these runs.

        Return False, with nothing stored, if one of them was erased or archived, or the job has ended or was replaced.
        The lock of the runs' rows orders this before or after an erasure, which deletes the job.
        """
        cursor = connection.execute(
            f"""
            WITH locked AS MATERIALIZED (
                SELECT id FROM runtime_run WHERE id = ANY(%(of)s) AND removed_at IS NULL
                    AND (archived_at IS NULL OR {self.reads_archive}) FOR SHARE)
            UPDATE {self.table} SET {_build_assignments(columns)} WHERE id = %(job)s AND state = 'running'
                AND (SELECT count(*) FROM locked) = cardinality(%(of)s::uuid[])
            """,
            {"job": job, "of": list(of), **columns},
        )
        return cursor.rowcount == 1

    def end(self, connection: Connection, job: UUID, problem: str = "") -> None:
        """End a job that is running: done, or failed with a problem."""
        connection.execute(
            f"""
            UPDATE {self.table} SET ended_at = clock_timestamp(), problem = %(problem)s,
                state = CASE WHEN %(problem)s = '' THEN 'done' ELSE 'failed' END
            WHERE id = %(job)s AND state = 'running'
            """,
            {"job": job, "problem": problem},
        )

    def end_lost(self, connection: Connection) -> None:
        """End the jobs whose worker did not end them in time."""
        connection.execute(
            f"""
            UPDATE {self.table} SET ended_at = clock_timestamp(), problem = %(lost)s, state = 'failed'
            WHERE state = 'running' AND started_at < clock_timestamp() - %(after)s * interval '1 second'
            """,
            {"lost": self.lost, "after": LOST_SECONDS},
        )

    def waiting(self, connection: Connection) -> list[UUID]:
        """Return the oldest jobs that no worker has begun for some seconds."""
        rows = connection.execute(
            f"""
            SELECT id FROM {self.table}
            WHERE state = 'queued' AND at < clock_timestamp() - %(after)s * interval '1 second'
            ORDER BY at LIMIT {MAX_RESENT}
            """,
            {"after": RESEND_SECONDS},
        )
        return [job for (job,) in rows.fetchall()]

    def prune(self, connection: Connection) -> None:
        """Delete old jobs, and those of an erased run that were written while it was erased."""
        connection.execute(
            f"""
            DELETE FROM {self.table} WHERE ended_at < clock_timestamp() - interval '{KEPT_DAYS} days'
                OR EXISTS (SELECT FROM runtime_run erased
                    WHERE {self.of_run.format("erased.id")} AND erased.removed_at IS NOT NULL)
            """
        )

    def _rows(self, connection: Connection, columns: dict[str, object], **sql: str) -> list[R]:
        expressions = {
            "agent": f"(SELECT r.agent FROM runtime_run r WHERE r.id = {self.table}.run) AS agent",
            **sql,
        }
        selected = ", ".join(expressions.get(field.name, field.name) for field in fields(self.row))
        condition = " AND ".join(f"{name} = %({name})s" for name in columns)
        with connection.cursor(row_factory=class_row(self.row)) as cursor:
            cursor.execute(
                f"SELECT {selected} FROM {self.table} WHERE {condition} ORDER BY at DESC LIMIT {MAX_LISTED}",
                columns,
            )
            return cursor.fetchall()


TRIALS = JobKind(
    name="trial",
    table="runtime_prompttrial",
    row=TrialRow,
    lost="The worker ended before the trial did. Start another trial.",
    of_run="{} = ANY(runs)",
)
REPLAYS = JobKind(
    name="replay",
    table="runtime_runreplay",
    row=ReplayRow,
    lost="The worker did not end the replay in time, or ended itself. Start another replay.",
    reads_archive=True,
)
PREVIEWS = JobKind(
    name="preview",
    table="runtime_editpreview",
    row=EditPreviewRow,
    lost="The worker ended before it had previewed the call. Preview it again.",
    # A person has one preview for each gate: the next one takes its place.
    on_conflict="""(gate, by) DO UPDATE SET id = excluded.id, args = excluded.args, state = 'queued',
        at = clock_timestamp(), started_at = NULL, ended_at = NULL, result = '', mac = '', key_id = '', problem = ''""",
)
KINDS: tuple[JobKind[Any], ...] = (TRIALS, REPLAYS, PREVIEWS)


def delete_for_run(connection: Connection, run: UUID) -> None:
    """Delete the jobs with contents of a run, inside the transaction that erases or archives it."""
    for kind in KINDS:
        condition = kind.of_run.format("%(run)s")
        connection.execute(f"DELETE FROM {kind.table} WHERE {condition}", {"run": run})


def _build_assignments(columns: dict[str, object]) -> str:
    return ", ".join(f"{name} = %({name})s" for name in columns)

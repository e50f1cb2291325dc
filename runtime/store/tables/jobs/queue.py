"""Jobs that people give to workers, such as the replay of a run. Each kind has a table of its own.

One worker begins a job, once. The sweeper sends a job again that no worker has begun, ends one whose worker is gone,
and deletes old ones.
"""

from dataclasses import dataclass
from uuid import UUID

from runtime.store.pool import Connection

RESEND_SECONDS = 10  # after which a job that no worker has begun is sent again
MAX_RESENT = 100  # jobs of a kind at once
LOST_SECONDS = 180  # after its start; a worker that lives has ended the job by then
KEPT_DAYS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Jobs:
    """The jobs of one kind. Their `table` has id, state, at, started_at, ended_at and problem.

    `lost` is the problem of a job that its worker did not end in time. `of_erased` is a condition in SQL: a run of the
    job was erased.
    """

    table: str
    lost: str
    of_erased: str

    def begin(self, connection: Connection, job: UUID) -> bool:
        """Begin a queued job. Return False if it was begun already, or does not exist."""
        done = connection.execute(
            f"UPDATE {self.table} SET state = 'running', started_at = clock_timestamp()"
            " WHERE id = %(job)s AND state = 'queued'",
            {"job": job},
        )
        return done.rowcount == 1

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
            ORDER BY at LIMIT %(most)s
            """,
            {"after": RESEND_SECONDS, "most": MAX_RESENT},
        )
        return [job for (job,) in rows.fetchall()]

    def prune(self, connection: Connection) -> None:
        """Delete old jobs, and those of an erased run that were written while it was erased."""
        connection.execute(
            f"DELETE FROM {self.table}"
            f" WHERE ended_at < clock_timestamp() - %(days)s * interval '1 day' OR {self.of_erased}",
            {"days": KEPT_DAYS},
        )

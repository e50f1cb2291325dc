"""The losses' keeper: which processes lost a run that they held, where in its journal, and when.

A run whose worker dies is taken over and goes on. One that keeps costing workers their life must be
told from those that happened to be in the same process, so every loss is evidence.
"""

from uuid import UUID

from runtime.database import Connection

# The part of the claim that notes whose lease ran out; `free` is the row as it was.
NOTE = """
    INSERT INTO runtime_loss (run_id, worker, host, process, position, isolated)
    SELECT free.id, free.worker, runtime_worker.host, runtime_worker.process, free.position,
        free.isolated
    FROM free LEFT JOIN runtime_worker ON runtime_worker.id = free.worker
    WHERE free.was_lost
"""


def suspects_of_last(connection: Connection, run: UUID) -> int:
    """Count the isolated runs that were lost by the same worker as this run's last loss; 0 if it is not known."""
    row = connection.execute(
        """
        SELECT count(DISTINCT other.run_id) FROM runtime_loss other
        JOIN runtime_run ON runtime_run.id = other.run_id AND runtime_run.isolated
        WHERE other.worker = (
            SELECT worker FROM runtime_loss WHERE run_id = %s ORDER BY id DESC LIMIT 1)
        """,
        (run,),
    ).fetchone()
    assert row is not None  # a count has one row
    found: int = row[0]
    return found

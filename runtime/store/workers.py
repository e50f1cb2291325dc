"""Stores the worker processes: the lease of each, and the runs they lost.

A sweeper records when it last looked for due runs in `runtime_sweeperloop`, under the name of its host.

A run whose worker dies is taken over and continues. A run that kills its workers must be distinguished from runs that
were only in the same process. So every lost lease is recorded: which process lost which run, at which position of its
journal, and when.

The row has what the process counted of its work. The web process reads it there, so no worker needs an address of its
own.
"""

import socket
from collections.abc import Mapping
from itertools import accumulate
from typing import Any
from uuid import UUID

from runtime.store.pool import Connection

# The part of the heartbeat statement that records that this process is alive and renews its lease.
BEAT = """
    INSERT INTO runtime_workerprocess (id, host, process, agents, isolated, hung, measures, runs, lease_until)
    VALUES (%(worker)s, %(host)s, %(process)s, %(agents)s::jsonb, %(isolated)s, %(hung)s,
        %(measures)s::jsonb, %(runs)s::uuid[], clock_timestamp() + %(lease)s * interval '1 second')
    ON CONFLICT (id) DO UPDATE
        SET beat_at = clock_timestamp(), hung = EXCLUDED.hung, measures = EXCLUDED.measures,
            runs = EXCLUDED.runs, lease_until = EXCLUDED.lease_until
    RETURNING beat_at
"""

# True if the process that has a run has an unexpired lease.
LIVE = """
    EXISTS (SELECT FROM runtime_workerprocess
        WHERE runtime_workerprocess.id = runtime_run.worker AND runtime_workerprocess.lease_until >= clock_timestamp())
"""

SWEEPER = "signoff sweeper "
FORGET = f"""
    WITH sweepers AS (DELETE FROM runtime_sweeperloop
        WHERE starts_with(name, '{SWEEPER}') AND done_at < clock_timestamp() - interval '1 day')
    DELETE FROM runtime_workerprocess WHERE beat_at < clock_timestamp() - interval '1 day'
"""

# The part of the sweeper's statement that records which processes lost a run; `taken` is the previous row.
NOTE_LOSS = """
    INSERT INTO runtime_lostlease (run_id, worker, host, process, position, isolated)
    SELECT taken.id, taken.worker, runtime_workerprocess.host, runtime_workerprocess.process, taken.position,
        taken.isolated
    FROM taken LEFT JOIN runtime_workerprocess ON runtime_workerprocess.id = taken.worker
    WHERE taken.was_lost
"""


def name_sweeper() -> str:
    """Return the name for this host's sweepers; Postgres keeps 63 bytes of it."""
    return f"{SWEEPER}{socket.gethostname()}"[:63]


def has_job_worker(connection: Connection, agent: str) -> bool:
    """Return whether a live worker that performs jobs has the agent."""
    row = connection.execute(
        """
        SELECT FROM runtime_workerprocess
        WHERE agents ? %s AND lease_until >= clock_timestamp() AND NOT isolated AND NOT hung LIMIT 1
        """,
        (agent,),
    ).fetchone()
    return row is not None


def end_lease(connection: Connection, worker: UUID) -> bool:
    """End the lease of a process that has certainly ended. Returns False if it had none."""
    cursor = connection.execute(
        "UPDATE runtime_workerprocess SET lease_until = clock_timestamp() WHERE id = %s", (worker,)
    )
    return cursor.rowcount == 1


def accumulate_buckets(measures: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Return how many steps took at most each bound of a stored histogram; the last bound is +Inf."""
    names = [*map(str, measures.get("bounds", ())), "+Inf"]
    return list(zip(names, accumulate(measures.get("buckets", [0])), strict=True))


def estimate_quantile(measures: Mapping[str, Any], share: float) -> float | None:
    """Estimate the time within which this share of the steps was committed, as `histogram_quantile` does.

    Return None if no step was counted, and the last bound for times above it.
    """
    steps = accumulate_buckets(measures)
    rank = share * steps[-1][1]
    if not rank:
        return None
    low, before = 0.0, 0
    for name, count in steps[:-1]:
        if count >= rank:
            return low + (float(name) - low) * (rank - before) / (count - before)
        low, before = float(name), count
    return low

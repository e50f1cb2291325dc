"""Stores the worker processes: the lease of each, and the runs they lost.

A sweeper records when it last looked for due runs in `runtime_sweeperloop`, under the name of its host.

A run whose worker dies is taken over and continues. A run that kills its workers must be distinguished from runs that
were only in the same process. So every lost lease is recorded: which process lost which run, at which position of its
journal, and when.

A process counts in memory its work, which costs a step a few additions. Its heartbeat stores the counts in the row.
The web process reads them there, so no worker needs an address of its own.
"""

import json
import socket
import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any
from uuid import UUID

from runtime.core.run.continuation import Continuation
from runtime.core.run.events import (
    Event,
    ModelFailed,
    OutcomeUnknown,
    RetryScheduled,
    ToolFailed,
    ToolReturned,
)
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

# Upper bounds of the buckets of commit times, in seconds. Each row has those it was counted with.
BOUNDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)

OUTCOMES = {"ToolReturned": "returned", "ToolFailed": "failed", "OutcomeUnknown": "in_doubt"}


class Measures:
    """The counts of one process since it started. Several runners may add to them at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._buckets = [0] * (len(BOUNDS) + 1)
        self._seconds = 0.0
        self._retries: Counter[str] = Counter()
        self._tokens: Counter[str] = Counter()
        self._model_errors = 0
        self._calls: Counter[str] = Counter()

    def add_step(self, seconds: float, events: Sequence[Event], *states: Continuation) -> None:
        """Count a committed step, the time from its first attempt to its commit, and what its events say.

        `states` are those after and before the step, which name the tools of its calls.
        """
        with self._lock:
            self._buckets[bisect_left(BOUNDS, seconds)] += 1
            self._seconds += seconds
            for event in events:
                if isinstance(event, RetryScheduled):
                    of = "model" if event.call is None else "tool"
                    self._retries[f"{of} {event.cause}"] += 1
                    self._model_errors += of == "model" and event.cause == "error"
                elif isinstance(event, ModelFailed):
                    self._model_errors += 1
                if usage := getattr(event, "usage", None):
                    for kind in ("input", "output"):
                        self._tokens[kind] += usage.get(f"{kind}_tokens", 0)
                if isinstance(event, ToolReturned | ToolFailed | OutcomeUnknown):
                    for state in states:  # the step may have made that call, or closed its frame
                        if event.frame in state.frames:
                            tool = state.call(event.frame, event.call).tool
                            self._calls[f"{tool} {OUTCOMES[event.type]}"] += 1
                            break

    def stored(self) -> str:
        """Return the counts as JSON."""
        with self._lock:
            return json.dumps(
                {
                    "bounds": BOUNDS,
                    "buckets": self._buckets,
                    "seconds": round(self._seconds, 6),
                    "retries": self._retries,
                    "tokens": self._tokens,
                    "model_errors": self._model_errors,
                    "calls": self._calls,
                }
            )


def sweeper_name() -> str:
    """Return the name for this host's sweepers; Postgres keeps 63 bytes of it."""
    return f"{SWEEPER}{socket.gethostname()}"[:63]


def have_agent(connection: Connection, agent: str) -> bool:
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


def cumulative(measures: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Return how many steps took at most each bound of a stored histogram; the last bound is +Inf."""
    names = [*map(str, measures.get("bounds", ())), "+Inf"]
    return list(zip(names, accumulate(measures.get("buckets", [0])), strict=True))


def quantile(measures: Mapping[str, Any], share: float) -> float | None:
    """Estimate the time within which this share of the steps was committed, as `histogram_quantile` does.

    Return None if no step was counted, and the last bound for times above it.
    """
    steps = cumulative(measures)
    rank = share * steps[-1][1]
    if not rank:
        return None
    low, before = 0.0, 0
    for name, count in steps[:-1]:
        if count >= rank:
            return low + (float(name) - low) * (rank - before) / (count - before)
        low, before = float(name), count
    return low

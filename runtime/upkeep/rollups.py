"""Counts by day what runs used and how they ended, so that the overview costs the same however many runs there are.

A day is one in UTC. A round lists the runs that a worker has, or that were released or ended since the last round;
no other run has new entries, and none is read. A run stays in the list until it is counted. Its journal is read from
where the round before stopped, and its position and counts change in one transaction. So a killed sweeper counts
nothing twice and forgets nothing. Nothing is verified and nothing decides by these counts. Entries that were removed
before a round could read them are not counted.
"""

import logging
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any, get_args
from uuid import UUID

import psycopg.errors

from runtime.core.documents.codec import decode_entry
from runtime.core.run import events as e
from runtime.core.values.errors import NewerSchema, Unreadable
from runtime.reads.journal import COLUMNS
from runtime.reads.run_figures import COUNTS, compute_recount_start
from runtime.store import pool
from runtime.store.pool import Connection
from runtime.store.tables.journal import unpack_row

log = logging.getLogger(__name__)

RUNS = 200  # of one query
ENTRIES = 200  # of one run that one transaction counts
OVERLAP = timedelta(
    minutes=5
)  # of two rounds: a transaction may commit after the time that it writes

# The events with the usage of a reply.
UsageEvent = (
    e.ModelReplied
    | e.Compacted
    | e.MemorySummarised
    | e.RetryScheduled
    | e.QuestionAnswered
    | e.AnswerDropped
)
_PATTERN = f'"(z|{"|".join(kind.__name__ for kind in get_args(UsageEvent))})"'

# When the last round of any sweeper began, which may be in the future if the clock was wrong, and the runs that workers
# have.
_BEGAN = """
    SELECT (SELECT least(done_at - coalesce(took, 0) * interval '1 second', clock_timestamp())
            FROM runtime_sweeperloop WHERE name = 'rollups'),
        ARRAY(SELECT unnest(runs) FROM runtime_workerprocess)
"""
_NO_LIMIT = "SET LOCAL statement_timeout = 0"  # after a long outage there may be many runs
# Each part reads an index. From its parameters Postgres knows how few rows these are.
_LIST = """
    WITH changed AS (
        SELECT id, position FROM runtime_run WHERE idle_since >= %(since)s AND ended_at IS NULL
        UNION ALL
        SELECT id, position FROM runtime_run WHERE ended_at >= %(since)s AND removed_at IS NULL
        UNION ALL
        SELECT id, position FROM runtime_run WHERE id = ANY(%(claimed)s)
    )
    INSERT INTO runtime_uncountedrun (run_id)
    SELECT id FROM changed LEFT JOIN runtime_runusage u ON u.run_id = id
    WHERE changed.position > coalesce(u.position, 0)
    ON CONFLICT DO NOTHING
"""
_LISTED = """
    SELECT r.id AS run, r.agent, r.requester, r.position, coalesce(u.position, 0) AS counted
    FROM runtime_uncountedrun JOIN runtime_run r ON r.id = runtime_uncountedrun.run_id
    LEFT JOIN runtime_runusage u ON u.run_id = r.id
    WHERE runtime_uncountedrun.run_id > %(after)s ORDER BY runtime_uncountedrun.run_id LIMIT %(limit)s
"""
# A run that has gone on meanwhile stays.
_UNLIST = """
    DELETE FROM runtime_uncountedrun WHERE run_id = %(run)s AND EXISTS (
        SELECT FROM runtime_run r JOIN runtime_runusage u ON u.run_id = r.id
        WHERE r.id = %(run)s AND u.position >= r.position)
"""

_READ = f"""
    SELECT {", ".join(COLUMNS)} FROM runtime_journalentry
    WHERE run_id = %(run)s AND position > %(after)s AND position <= %(until)s
        AND (packed IS NOT NULL OR body ~ %(pattern)s)
"""

_VALUES = ", ".join(f"%({name})s" for name in COUNTS)


def _build_additions(table: str) -> str:
    return ", ".join(f"{name} = {table}.{name} + EXCLUDED.{name}" for name in COUNTS)


# Of two sweepers the second one finds another position.
_ADVANCE = f"""
    INSERT INTO runtime_runusage (run_id, position, {", ".join(COUNTS)})
    VALUES (%(run)s, %(until)s, {_VALUES})
    ON CONFLICT (run_id) DO UPDATE SET position = EXCLUDED.position, {_build_additions("runtime_runusage")}
        WHERE runtime_runusage.position = %(after)s
    RETURNING run_id
"""
_ADD = f"""
    INSERT INTO runtime_dailyusage (day, agent, model, requester, {", ".join(COUNTS)})
    VALUES (%(day)s, %(agent)s, %(model)s, %(requester)s, {_VALUES})
    ON CONFLICT (day, agent, model, requester) DO UPDATE SET {_build_additions("runtime_dailyusage")}
"""

# A day has no row in `ended` if its last run was started again.
_COUNT_ENDED = """
    WITH ended AS (
        SELECT (ended_at AT TIME ZONE 'UTC')::date AS day, status, count(*) AS number FROM runtime_run
        WHERE ended_at >= %(since)s AND removed_at IS NULL GROUP BY 1, 2
    ), emptied AS (
        UPDATE runtime_dailyruns SET statuses = '{}'
        WHERE day >= %(day)s AND day NOT IN (SELECT day FROM ended)
    )
    INSERT INTO runtime_dailyruns (day, statuses)
    SELECT day, jsonb_object_agg(status, number) FROM ended GROUP BY day
    ON CONFLICT (day) DO UPDATE SET statuses = EXCLUDED.statuses
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _ChangedRun:
    """A listed run: its entries after `counted` and up to `position` are not counted yet."""

    run: UUID
    agent: str
    requester: str
    position: int
    counted: int


@dataclass(slots=True)
class _CountedReplies:
    """The counts of some replies, by day and model."""

    by_day: dict[tuple[date, str], Counter[str]] = field(
        default_factory=lambda: defaultdict(Counter)
    )

    def add(self, event: e.Event, at: datetime) -> None:
        """Count the reply in an event, if it has one."""
        if not isinstance(event, UsageEvent) or not event.usage:
            return
        self.by_day[at.astimezone(UTC).date(), event.model].update(
            replies=1,
            unpriced=int(event.cost is None),
            input_tokens=event.usage.get("input_tokens", 0),
            output_tokens=event.usage.get("output_tokens", 0),
            micros=event.cost or 0,
        )

    def total(self) -> Counter[str]:
        """Return the counts of all days and models."""
        return sum(self.by_day.values(), Counter[str]())


def roll_up(connection: Connection, stop: threading.Event) -> None:
    """Count the entries and ends since the last round, until `stop`."""
    count_usage(connection, stop)
    count_ended(connection)


def count_usage(connection: Connection, stop: threading.Event) -> int:
    """Count the usage of the runs that have new entries, each once, until `stop`. Return the number of counted runs."""
    list_changed_runs(connection)
    number = 0
    for changed in _yield_changed_runs(connection):
        if stop.is_set():
            return number
        if _count_run(connection, changed, stop):
            connection.execute(_UNLIST, {"run": changed.run})
            number += 1
    return number


def list_changed_runs(connection: Connection) -> None:
    """List the runs that may have new entries since the last round began."""
    row = connection.execute(_BEGAN).fetchone()
    assert row is not None  # a SELECT without FROM has one row
    began, claimed = row
    since = began - OVERLAP if began else compute_recount_start(None)
    with connection.transaction():
        connection.execute(_NO_LIMIT)
        connection.execute(_LIST, {"since": since, "claimed": claimed}, prepare=False)


def count_ended(connection: Connection) -> None:
    """Count the ended runs of the newest days by status."""
    row = connection.execute(
        "SELECT max(day) FROM runtime_dailyruns WHERE day <= (clock_timestamp() AT TIME ZONE 'UTC')::date"
    ).fetchone()
    newest = row[0] if row else None
    since = compute_recount_start(newest)
    connection.execute(_COUNT_ENDED, {"since": since, "day": since.date()})


def _yield_changed_runs(connection: Connection) -> Iterator[_ChangedRun]:
    """Yield each listed run once, also one that goes on and stays in the list."""
    after = UUID(int=0)
    while True:
        rows = connection.execute(_LISTED, {"after": after, "limit": RUNS}).fetchall()
        changed = [pool.decode_row(_ChangedRun, row) for row in rows]
        yield from changed
        if len(changed) < RUNS:
            return
        after = changed[-1].run


def _count_run(connection: Connection, changed: _ChangedRun, stop: threading.Event) -> bool:
    """Count the new entries of a run. Return False if it was not counted to its end."""
    try:
        return all(
            not stop.is_set() and _count_part(connection, changed, after=after)
            for after in range(changed.counted, changed.position, ENTRIES)
        )
    except NewerSchema as exc:
        log.warning("Run %s: is not counted, left to a newer sweeper: %s", changed.run, exc)
    except (psycopg.DataError, psycopg.errors.ProgramLimitExceeded) as exc:
        log.error("Run %s: cannot be counted: %s", changed.run, exc)
    return False


def _count_part(connection: Connection, changed: _ChangedRun, *, after: int) -> bool:
    """Count the next entries of a run. Return False if another sweeper was faster. Raises NewerSchema."""
    until = min(changed.position, after + ENTRIES)
    span = {"run": changed.run, "after": after, "until": until}
    with connection.transaction():
        usage = _read_usage(connection, span)
        advanced = connection.execute(
            _ADVANCE, {**span, **_select_counts(usage.total())}
        ).fetchone()
        if advanced is None:
            return False
        of_run = {"agent": changed.agent, "requester": changed.requester}
        # In one order, so that two sweepers do not wait for each other.
        for (day, model), counts in sorted(usage.by_day.items()):
            connection.execute(
                _ADD, {"day": day, "model": model, **of_run, **_select_counts(counts)}
            )
    return True


def _read_usage(connection: Connection, span: dict[str, Any]) -> _CountedReplies:
    usage = _CountedReplies()
    for row in connection.execute(_READ, {**span, "pattern": _PATTERN}):
        _, body, *_ = unpack_row(*row)
        try:
            entry = decode_entry(body)
        except (Unreadable, RecursionError):
            continue  # no release can read it
        for event in entry.events:
            usage.add(event, entry.at)
    return usage


def _select_counts(counts: Counter[str]) -> dict[str, int]:
    return {name: counts[name] for name in COUNTS}

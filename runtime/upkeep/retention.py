"""Removes what ended runs were given, said and did, once the operator's rules say that it is old enough.

What stays of a run is that it was: its row without payloads, its gates, its audit rows, and the decisions
with their digests and signatures. Its journal is verified once more, then goes, and a mark under a MAC says
where it ended. A run whose journal does not verify is left as it is, and raises an alarm: an admin must look at it.

One run is one transaction, so a process that stops in between loses nothing.
"""

import logging
import threading
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.conf import settings
from django.db import transaction

from runtime.errors import KeyMissing, Tampered
from runtime.ports import wiring
from runtime.store import pool, runs
from runtime.store.pool import Connection
from runtime.store.tables import (
    blobs,
    continuations,
    external_events,
    journal,
    late_outcomes,
    pruning,
    signals,
)
from runtime.store.workers import FORGET
from runtime.upkeep.retention_rules import Rule

log = logging.getLogger(__name__)

BATCH = 100  # runs that are looked for at once
COLLECTED = 1_000  # contents that are removed in one statement


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Ended runs of one agent that came out alike; those that are old enough, and the first end among them."""

    agent: str
    status: str
    days: int
    runs: int
    earliest: datetime


# The rule that counts for a run: its days, or NULL for never. Rules are ordered as retention_rules does.
_DAYS = """
    (SELECT rule.days FROM unnest(%(agents)s::text[], %(statuses)s::text[], %(days)s::int[])
        WITH ORDINALITY AS rule(agent, status, days, place)
     WHERE (rule.agent IS NULL OR rule.agent = run.agent)
        AND (rule.status IS NULL OR rule.status = run.status)
     ORDER BY rule.place LIMIT 1)
"""
_OLD = f"""
    run.ended_at < clock_timestamp() - %(least)s * interval '1 day' AND run.removed_at IS NULL
    AND run.ended_at < clock_timestamp() - {_DAYS} * interval '1 day'
"""


def rules() -> tuple[Rule, ...]:
    found: tuple[Rule, ...] = settings.ABEYANCE_RETENTION
    return found


def outlook(connection: Connection) -> list[Group]:
    """What `enforce` would remove now, by agent and status."""
    given = _parameters(rules())
    if given is None:
        return []
    found = connection.execute(
        f"""
        SELECT agent, status, {_DAYS}, count(*), min(ended_at) FROM runtime_run run WHERE {_OLD}
        GROUP BY agent, status ORDER BY agent, status
        """,
        given,
    )
    return [
        Group(agent=agent, status=status, days=days, runs=count, earliest=earliest)
        for agent, status, days, count, earliest in found.fetchall()
    ]


def enforce(connection: Connection, stop: threading.Event) -> int:
    """Remove the payloads of every run that is old enough, until `stop`. Returns how many runs.

    It also deletes workers that are long gone, blobs to which no run refers any more, and ids of events that were sent
    long ago.
    """
    connection.execute(FORGET)
    given, removed = _parameters(rules()), 0
    after: datetime | None = None
    while given is not None and not stop.is_set():
        batch = _old(connection, given, after)
        removed += sum(_remove_one(run) for run, _ in batch if not stop.is_set())
        if len(batch) < BATCH:
            break
        after = batch[-1][1]
    while not stop.is_set() and blobs.collect(connection, COLLECTED) == COLLECTED:
        pass
    while not stop.is_set() and external_events.prune(connection) == external_events.PRUNED:
        pass
    if removed:
        log.info("the payloads of %d runs were removed", removed)
    return removed


def remove(run: UUID, *, waits: bool = True) -> bool:
    """Remove the payloads of one ended run.

    False if it is not over or has lost them already, and unless it `waits`, if another transaction has the run.

    Raises Tampered or KeyMissing, with nothing removed, if its journal does not verify.
    """
    with transaction.atomic():
        connection = pool.djangos()
        end = runs.strip(connection, run, waits=waits)
        if end is None:
            return False
        journal.verify(connection, run, position=end.position, head=end.head)
        at = pruning.write(connection, run, position=end.position, head=end.head)
        journal.remove(connection, run, until=end.position)
        continuations.forget_base(connection, run)
        blobs.forget(connection, run)
        signals.forget(connection, run)
        late_outcomes.forget(connection, run)
        wiring.gatekeeper().forget(run=run, at=at, head=end.head)
    return True


def _remove_one(run: UUID) -> bool:
    try:
        return remove(run, waits=False)  # another sweeper may be at it
    except (Tampered, KeyMissing) as exc:
        log.critical("run %s keeps its payloads, its journal does not verify: %s", run, exc)
        return False


def _old(
    connection: Connection, given: dict[str, object], after: datetime | None
) -> list[tuple[UUID, datetime]]:
    """Runs that are old enough, the oldest first; those that could not be removed are passed over."""
    found = connection.execute(
        f"""
        SELECT id, ended_at FROM runtime_run run
        WHERE {_OLD} AND (%(after)s::timestamptz IS NULL OR run.ended_at > %(after)s)
        ORDER BY ended_at LIMIT %(batch)s
        """,
        {**given, "after": after, "batch": BATCH},
    )
    return [(run, ended) for run, ended in found.fetchall()]


def _parameters(found: tuple[Rule, ...]) -> dict[str, object] | None:
    """None if nothing is ever removed."""
    days = [rule.days for rule in found if rule.days is not None]
    if not days:
        return None
    return {
        "agents": [rule.agent for rule in found],
        "statuses": [rule.status for rule in found],
        "days": [rule.days for rule in found],
        "least": min(days),
    }

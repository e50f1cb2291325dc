"""Erases the payloads of ended runs by the rules of the operator.

A run keeps its row without payloads, its gates, its audit rows, and its decisions with their digests and signatures.
Retention verifies the journal before it deletes it, and writes a prune mark with a MAC that says where the journal
ended. If a journal does not verify, the run stays unchanged and the log has a critical line for an admin.

Each run is one transaction, so a process can stop between two runs.
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
    archived_runs,
    blobs,
    continuations,
    external_events,
    journal,
    late_outcomes,
    partial_replies,
    pruning,
    signals,
)
from runtime.store.tables.triggers import received_events, trigger_events, watched_files
from runtime.store.workers import FORGET
from runtime.upkeep.retention_rules import Rule

log = logging.getLogger(__name__)

BATCH = 100  # runs of one query
COLLECTED = 1_000  # blobs that one statement deletes

_PRUNED = (
    external_events.prune,
    trigger_events.prune,
    received_events.prune,
    watched_files.prune,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Ended runs of one agent and status that are old enough, and the earliest end among them."""

    agent: str
    status: str
    days: int
    runs: int
    earliest: datetime


# The days of the rule that applies to a run, NULL for never. retention_rules orders the rules.
DAYS = """
    (SELECT rule.days FROM unnest(%(agents)s::text[], %(statuses)s::text[], %(days)s::int[])
        WITH ORDINALITY AS rule(agent, status, days, place)
     WHERE (rule.agent IS NULL OR rule.agent = run.agent)
        AND (rule.status IS NULL OR rule.status = run.status)
     ORDER BY rule.place LIMIT 1)
"""
_OLD = f"""
    run.ended_at < clock_timestamp() - %(least)s * interval '1 day' AND run.removed_at IS NULL
    AND run.legal_hold IS NULL
    AND run.ended_at < clock_timestamp() - {DAYS} * interval '1 day'
"""


def rules() -> tuple[Rule, ...]:
    """Return the operator's retention rules."""
    found: tuple[Rule, ...] = settings.ABEYANCE_RETENTION
    return found


def preview(connection: Connection) -> list[Group]:
    """Return the runs that `enforce` would erase now, by agent and status."""
    given = parameters(rules())
    if given is None:
        return []
    found = connection.execute(
        f"""
        SELECT agent, status, {DAYS}, count(*), min(ended_at) FROM runtime_run run WHERE {_OLD}
        GROUP BY agent, status ORDER BY agent, status
        """,
        given,
    )
    return [
        Group(agent=agent, status=status, days=days, runs=count, earliest=earliest)
        for agent, status, days, count, earliest in found.fetchall()
    ]


def enforce(connection: Connection, stop: threading.Event) -> int:
    """Erase the payloads of every run that is old enough, until `stop`. Returns the number of runs.

    It also deletes the rows of old workers, unreferenced blobs, and old external events.
    """
    connection.execute(FORGET)
    given, removed = parameters(rules()), 0
    after: datetime | None = None
    while given is not None and not stop.is_set():
        batch = _old(connection, given, after)
        removed += sum(_erase_one(run) for run, _ in batch if not stop.is_set())
        if len(batch) < BATCH:
            break
        after = batch[-1][1]
    while not stop.is_set() and blobs.collect(connection, COLLECTED) == COLLECTED:
        pass
    for prune in _PRUNED:
        while not stop.is_set() and prune(connection) == external_events.PRUNED:
            pass
    if removed:
        log.info("Retention erased the payloads of %d runs", removed)
    return removed


def erase(run: UUID, *, waits: bool = True) -> bool:
    """Erase the payloads of one ended run.

    Returns False if the run has not ended, has no payloads or is under a legal hold, and without `waits`, if another
    transaction locks it.
    Raises Tampered or KeyMissing, with nothing erased, if its journal does not verify.
    """
    with transaction.atomic():
        connection = pool.djangos()
        end = runs.erase_payloads(connection, run, waits=waits)
        if end is None:
            return False
        journal.verify(connection, run, position=end.position, head=end.head)
        at = pruning.write(connection, run, position=end.position, head=end.head)
        journal.delete_until(connection, run, until=end.position)
        continuations.delete_base(connection, run)
        blobs.delete_for_run(connection, run)
        blobs.forget(connection, run)
        signals.delete_for_run(connection, run)
        late_outcomes.delete_for_run(connection, run)
        partial_replies.delete_for_run(connection, run)
        archived_runs.drop(connection, run)
        wiring.approvals().erase(run=run, at=at, head=end.head)
    return True


def _erase_one(run: UUID) -> bool:
    try:
        return erase(run, waits=False)  # another sweeper may have locked the run
    except (Tampered, KeyMissing) as exc:
        log.critical("Run %s: keeps its payloads, its journal does not verify: %s", run, exc)
        return False


def _old(
    connection: Connection, given: dict[str, object], after: datetime | None
) -> list[tuple[UUID, datetime]]:
    """List runs that are old enough, the oldest first, after the ones that could not be erased."""
    found = connection.execute(
        f"""
        SELECT id, ended_at FROM runtime_run run
        WHERE {_OLD} AND (%(after)s::timestamptz IS NULL OR run.ended_at > %(after)s)
        ORDER BY ended_at LIMIT %(batch)s
        """,
        {**given, "after": after, "batch": BATCH},
    )
    return [(run, ended) for run, ended in found.fetchall()]


def parameters(found: tuple[Rule, ...]) -> dict[str, object] | None:
    """Return the parameters of the rules; None if no rule erases payloads."""
    days = [rule.days for rule in found if rule.days is not None]
    if not days:
        return None
    return {
        "agents": [rule.agent for rule in found],
        "statuses": [rule.status for rule in found],
        "days": [rule.days for rule in found],
        "least": min(days),
    }

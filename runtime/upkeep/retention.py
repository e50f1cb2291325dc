"""Erases the payloads of ended runs, and archives ended runs, by the rules of the operator.

A run keeps its row without payloads, its gates, its audit rows, and its decisions with their digests and signatures.
Retention verifies the journal before it deletes it, and writes a prune mark with a MAC that says where the journal
ended. If a journal does not verify, the run stays unchanged and the log has a critical line for an admin.

The archive has a file for each run, and its data is deleted from Postgres. The order loses nothing: the key of the
file is committed, the file is written and read back, and one transaction deletes the data and records the file. A
sweeper that dies in between leaves a key, which the next one drops.

Each run is one transaction, so a process can stop between two runs.
"""

import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.conf import settings
from django.db import transaction

from runtime.core.documents import external_call
from runtime.core.values.errors import CoreError
from runtime.errors import KeyMissing, ObjectStoreDown, Tampered, TooLarge
from runtime.ports import wiring
from runtime.store import archived_entries, archived_runs, failpoints, pool, runs
from runtime.store.tables import (
    blobs,
    jobs,
    journal,
    late_outcomes,
    occurrences,
    pruning,
    received_events,
    trigger_sources,
)
from runtime.store.workers import FORGET
from runtime.upkeep.retention_rules import RetentionRule

log = logging.getLogger(__name__)

BATCH = 100  # runs of one query
COLLECTED = 1_000  # blobs that one statement deletes

_PRUNED = (
    received_events.prune_ids,
    occurrences.prune,
    received_events.prune,
    trigger_sources.prune_files,
)

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
    AND (run.agent <> '{external_call.AGENT}' OR run.ended_at < clock_timestamp() - interval '1 day'
        * CASE run.status WHEN 'failed' THEN {external_call.FAILED_KEPT_DAYS} ELSE {external_call.KEPT_DAYS} END)
"""
# A restored run stays as long again as its rule says.
_STILL_HERE = f"""
    run.archived_at IS NULL
    AND NOT EXISTS (SELECT FROM runtime_archivedrun a WHERE a.run_id = run.id AND a.state = 'restored'
        AND a.at > clock_timestamp() - {DAYS} * interval '1 day')
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class OldRuns:
    """Ended runs of one agent and status that are old enough, and the earliest end among them."""

    agent: str
    status: str
    days: int
    runs: int
    earliest: datetime


def read_rules() -> tuple[RetentionRule, ...]:
    """Return the operator's retention rules."""
    configured: tuple[RetentionRule, ...] = settings.SIGNOFF_RETENTION
    return configured


def preview(connection: pool.Connection) -> list[OldRuns]:
    """Return the runs that `enforce` would erase now, by agent and status."""
    return list_groups(connection, read_rules())


def enforce(connection: pool.Connection, stop: threading.Event) -> int:
    """Erase the payloads of every run that is old enough, until `stop`. Returns the number of runs.

    It also deletes the rows of old workers, unreferenced blobs, and old external events.
    """
    connection.execute(FORGET)
    removed = 0
    for run in yield_runs(connection, read_rules(), stop):
        try:
            removed += erase(run, waits=False)  # another sweeper may have locked the run
        except (Tampered, KeyMissing) as exc:
            log.critical("Run %s: keeps its payloads, it does not verify: %s", run, exc)
    while not stop.is_set() and blobs.collect(connection, COLLECTED) == COLLECTED:
        pass
    for prune in _PRUNED:
        while not stop.is_set() and prune(connection) == received_events.PRUNED:
            pass
    if removed:
        log.info("Retention erased the payloads of %d runs", removed)
    return removed


def erase(run: UUID, *, waits: bool = True) -> bool:
    """Erase the payloads of one ended run.

    Returns False if the run has not ended, has no payloads or is under a legal hold, and without `waits`, if another
    transaction locks it.
    Raises Tampered or KeyMissing, with nothing erased, if its journal does not verify, or its hold was lifted in
    Postgres alone.
    """
    with transaction.atomic():
        connection = pool.use_django_connection()
        end = runs.erase_payloads(connection, run, waits=waits)
        if end is None:
            return False
        position, head = end
        runs.require_no_hold(run)
        journal.verify(connection, run, position=position, head=head)
        at = pruning.write(connection, run, position=position, head=head)
        journal.delete_until(connection, run, until=position)
        runs.delete_rows(connection, run, *runs.OF_LIVE_RUNS, blobs.REFERENCES, late_outcomes.TABLE)
        archived_entries.drop_all(connection, run)
        blobs.forget(connection, run)
        jobs.delete_for_run(connection, run)
        archived_runs.drop(connection, run)
        wiring.resolve_approvals().erase(run=run, at=at, head=head)
    return True


def list_groups(
    connection: pool.Connection, rules: tuple[RetentionRule, ...], but: str = "TRUE"
) -> list[OldRuns]:
    """Return the runs that are old enough now and meet the condition `but`, by agent and status."""
    parameters = _build_parameters(rules)
    if parameters is None:
        return []
    rows = connection.execute(
        f"""
        SELECT agent, status, {DAYS}, count(*), min(ended_at) FROM runtime_run run WHERE {_OLD} AND {but}
        GROUP BY agent, status ORDER BY agent, status
        """,
        parameters,
    )
    return [pool.decode_row(OldRuns, row) for row in rows]


def yield_runs(
    connection: pool.Connection,
    rules: tuple[RetentionRule, ...],
    stop: threading.Event,
    but: str = "TRUE",
) -> Iterator[UUID]:
    """Yield the runs of `list_groups`, the oldest first, until `stop`. A run that stays is not yielded again."""
    parameters = _build_parameters(rules)
    after: datetime | None = None
    while parameters is not None and not stop.is_set():
        rows = connection.execute(
            f"""
            SELECT id, ended_at FROM runtime_run run
            WHERE {_OLD} AND {but} AND (%(after)s::timestamptz IS NULL OR run.ended_at > %(after)s)
            ORDER BY ended_at LIMIT %(batch)s
            """,
            {**parameters, "after": after, "batch": BATCH},
        )
        batch = rows.fetchall()
        for run, _ in batch:
            if stop.is_set():
                return
            yield run
        if len(batch) < BATCH:
            return
        after = batch[-1][1]


def archive_rules() -> tuple[RetentionRule, ...]:
    """Return the operator's rules for the archive."""
    configured: tuple[RetentionRule, ...] = settings.SIGNOFF_ARCHIVE
    return configured


def preview_archive(connection: pool.Connection) -> list[OldRuns]:
    """Return the runs that `archive_old_runs` would archive now, by agent and status."""
    return list_groups(connection, archive_rules(), _STILL_HERE)


def archive_old_runs(connection: pool.Connection, stop: threading.Event) -> int:
    """Archive every run that is old enough, until `stop`. Returns the number of runs.

    A store that is down ends the round: the next one continues.
    """
    archived_runs.drop_restored(connection)
    archived = 0
    for run in yield_runs(connection, archive_rules(), stop, _STILL_HERE):
        try:
            archived += archive_run(connection, run)
        except ObjectStoreDown as exc:
            log.error("Runs are archived later: %s", exc)
            break
    if archived:
        log.info("Archived %d runs", archived)
    return archived


def archive_run(connection: pool.Connection, run: UUID) -> bool:
    """Archive one ended run, outside a transaction. Raises ObjectStoreDown, with nothing deleted.

    Returns False if the run may not be archived, or has a journal that does not verify, which is logged.
    """
    key = archived_runs.reserve(connection, run)
    if key is None:
        return False
    failpoints.hit("reserved", "archive", 0)
    try:
        with transaction.atomic():
            archived = archived_runs.write(pool.use_django_connection(), run, key)
            failpoints.hit("deleted", "archive", 0)
            if not archived:
                transaction.set_rollback(True)
    except (Tampered, KeyMissing, CoreError) as exc:
        log.critical("Run %s: is not archived, it does not verify: %s", run, exc)
        return False
    except TooLarge:
        log.warning("Run %s: is not archived, its file would be too large", run)
        return False
    failpoints.hit("archived", "archive", 0)
    return archived


def _build_parameters(rules: tuple[RetentionRule, ...]) -> dict[str, object] | None:
    """Return the parameters of the rules; None if no rule names days."""
    days = [rule.days for rule in rules if rule.days is not None]
    if not days:
        return None
    return {
        "agents": [rule.agent for rule in rules],
        "statuses": [rule.status for rule in rules],
        "days": [rule.days for rule in rules],
        "least": min(days),
    }

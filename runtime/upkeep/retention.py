"""Erases the payloads of ended runs by the rules of the operator.

A run keeps its row without payloads, its gates, its audit rows, and its decisions with their digests and signatures.
Retention verifies the journal before it deletes it, and writes a prune mark with a MAC that says where the journal
ended. If a journal does not verify, the run stays unchanged and the log has a critical line for an admin.

Each run is one transaction, so a process can stop between two runs.
"""

import logging
import threading
from uuid import UUID

from django.conf import settings
from django.db import transaction

from runtime.errors import KeyMissing, Tampered
from runtime.ports import wiring
from runtime.store import archived_entries, archived_runs, pool, runs
from runtime.store.pool import Connection
from runtime.store.tables import (
    blobs,
    continuations,
    jobs,
    journal,
    late_outcomes,
    occurrences,
    partial_replies,
    pruning,
    received_events,
    signals,
    trigger_sources,
)
from runtime.store.workers import FORGET
from runtime.upkeep import old_runs
from runtime.upkeep.retention_rules import RetentionRule

log = logging.getLogger(__name__)

COLLECTED = 1_000  # blobs that one statement deletes

_PRUNED = (
    received_events.prune_ids,
    occurrences.prune,
    received_events.prune,
    trigger_sources.prune_files,
)


def rules() -> tuple[RetentionRule, ...]:
    """Return the operator's retention rules."""
    configured: tuple[RetentionRule, ...] = settings.SIGNOFF_RETENTION
    return configured


def preview(connection: Connection) -> list[old_runs.OldRuns]:
    """Return the runs that `enforce` would erase now, by agent and status."""
    return old_runs.list_groups(connection, rules())


def enforce(connection: Connection, stop: threading.Event) -> int:
    """Erase the payloads of every run that is old enough, until `stop`. Returns the number of runs.

    It also deletes the rows of old workers, unreferenced blobs, and old external events.
    """
    connection.execute(FORGET)
    removed = sum(_erase_one(run) for run in old_runs.yield_runs(connection, rules(), stop))
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
        connection = pool.djangos()
        end = runs.erase_payloads(connection, run, waits=waits)
        if end is None:
            return False
        runs.require_no_hold(run)
        journal.verify(connection, run, position=end.position, head=end.head)
        at = pruning.write(connection, run, position=end.position, head=end.head)
        journal.delete_until(connection, run, until=end.position)
        continuations.delete_base(connection, run)
        archived_entries.drop_all(connection, run)
        blobs.delete_for_run(connection, run)
        blobs.forget(connection, run)
        signals.delete_for_run(connection, run)
        late_outcomes.delete_for_run(connection, run)
        partial_replies.delete_for_run(connection, run)
        jobs.delete_for_run(connection, run)
        archived_runs.drop(connection, run)
        wiring.approvals().erase(run=run, at=at, head=end.head)
    return True


def _erase_one(run: UUID) -> bool:
    try:
        return erase(run, waits=False)  # another sweeper may have locked the run
    except (Tampered, KeyMissing) as exc:
        log.critical("Run %s: keeps its payloads, it does not verify: %s", run, exc)
        return False

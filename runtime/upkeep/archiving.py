"""Archives ended runs by the rules of the operator: writes each one's file, then deletes its data from Postgres.

The order loses nothing: the key of the file is committed, the file is written and read back, and one transaction
deletes the data and records the file. A sweeper that dies in between leaves a key, which the next one drops.
"""

import logging
import threading
from datetime import datetime
from uuid import UUID

from django.conf import settings
from django.db import transaction

from runtime.core.errors import CoreError
from runtime.errors import KeyMissing, ObjectStoreDown, Tampered, TooLarge
from runtime.store import archive, failpoints, pool
from runtime.store.pool import Connection
from runtime.store.tables import archived_runs
from runtime.upkeep.retention import BATCH, DAYS, Group, parameters
from runtime.upkeep.retention_rules import Rule

log = logging.getLogger(__name__)

# A restored run stays as long again as its rule says. A shortened journal has no first entry for the file.
_OLD = f"""
    run.ended_at < clock_timestamp() - %(least)s * interval '1 day' AND run.removed_at IS NULL
    AND run.archived_at IS NULL AND run.legal_hold IS NULL
    AND run.ended_at < clock_timestamp() - {DAYS} * interval '1 day'
    AND NOT EXISTS (SELECT FROM runtime_archivedrun a WHERE a.run_id = run.id AND a.state = 'restored'
        AND a.at > clock_timestamp() - {DAYS} * interval '1 day')
    AND NOT EXISTS (SELECT FROM runtime_pruning p WHERE p.run_id = run.id)
"""


def rules() -> tuple[Rule, ...]:
    """Return the operator's rules for the archive."""
    found: tuple[Rule, ...] = settings.ABEYANCE_ARCHIVE
    return found


def preview(connection: Connection) -> list[Group]:
    """Return the runs that `enforce` would archive now, by agent and status."""
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
    """Archive every run that is old enough, until `stop`. Returns the number of runs.

    A store that is down ends the round: the next one continues.
    """
    archived_runs.drop_restored(connection)
    given, done = parameters(rules()), 0
    after: datetime | None = None
    while given is not None and not stop.is_set():
        batch = _old(connection, given, after)
        for run, _ in batch:
            if stop.is_set():
                break
            try:
                done += archive_run(connection, run)
            except ObjectStoreDown as exc:
                log.error("Runs are archived later: %s", exc)
                return done
        if len(batch) < BATCH:
            break
        after = batch[-1][1]
    if done:
        log.info("Archived %d runs", done)
    return done


def archive_run(connection: Connection, run: UUID) -> bool:
    """Archive one ended run, outside a transaction. Raises ObjectStoreDown, with nothing deleted.

    Returns False if the run may not be archived, or has a journal that does not verify, which is logged.
    """
    place = archived_runs.reserve(connection, run)
    if place is None:
        return False
    failpoints.hit("reserved", "archive", 0)
    try:
        with transaction.atomic():
            done = archive.write(pool.djangos(), run, place)
            failpoints.hit("deleted", "archive", 0)
            if not done:
                transaction.set_rollback(True)
    except (Tampered, KeyMissing, CoreError) as exc:
        log.critical("Run %s: is not archived, it does not verify: %s", run, exc)
        return False
    except TooLarge:
        log.warning("Run %s: is not archived, its file would be too large", run)
        return False
    failpoints.hit("archived", "archive", 0)
    return done


def _old(
    connection: Connection, given: dict[str, object], after: datetime | None
) -> list[tuple[UUID, datetime]]:
    """List runs that are old enough, the oldest first, after the ones that could not be archived."""
    found = connection.execute(
        f"""
        SELECT id, ended_at FROM runtime_run run
        WHERE {_OLD} AND (%(after)s::timestamptz IS NULL OR run.ended_at > %(after)s)
        ORDER BY ended_at LIMIT %(batch)s
        """,
        {**given, "after": after, "batch": BATCH},
    )
    return [(run, ended) for run, ended in found.fetchall()]

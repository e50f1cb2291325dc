"""Archives ended runs by the rules of the operator: writes each one's file, then deletes its data from Postgres.

The order loses nothing: the key of the file is committed, the file is written and read back, and one transaction
deletes the data and records the file. A sweeper that dies in between leaves a key, which the next one drops.
"""

import logging
import threading
from uuid import UUID

from django.conf import settings
from django.db import transaction

from runtime.core.values.errors import CoreError
from runtime.errors import KeyMissing, ObjectStoreDown, Tampered, TooLarge
from runtime.store import archived_runs, failpoints, pool
from runtime.upkeep import retention
from runtime.upkeep.retention_rules import RetentionRule

log = logging.getLogger(__name__)

# A restored run stays as long again as its rule says.
_STILL_HERE = f"""
    run.archived_at IS NULL
    AND NOT EXISTS (SELECT FROM runtime_archivedrun a WHERE a.run_id = run.id AND a.state = 'restored'
        AND a.at > clock_timestamp() - {retention.DAYS} * interval '1 day')
"""


def rules() -> tuple[RetentionRule, ...]:
    """Return the operator's rules for the archive."""
    configured: tuple[RetentionRule, ...] = settings.SIGNOFF_ARCHIVE
    return configured


def preview(connection: pool.Connection) -> list[retention.OldRuns]:
    """Return the runs that `enforce` would archive now, by agent and status."""
    return retention.list_groups(connection, rules(), _STILL_HERE)


def enforce(connection: pool.Connection, stop: threading.Event) -> int:
    """Archive every run that is old enough, until `stop`. Returns the number of runs.

    A store that is down ends the round: the next one continues.
    """
    archived_runs.drop_restored(connection)
    archived = 0
    for run in retention.yield_runs(connection, rules(), stop, _STILL_HERE):
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
            archived = archived_runs.write(pool.djangos(), run, key)
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

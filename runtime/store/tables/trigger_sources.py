"""Stores what triggers read: sources with the last look at each, files that it saw or took, and addresses of webhooks.

A row finds the trigger. The signed act of the trigger names its source, or the address and secret of its webhook.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, get_args
from uuid import UUID

from runtime.store import pool
from runtime.store.pool import Connection
from runtime.store.tables.received_events import KEPT_DAYS, PRUNED

SourceKind = Literal["folder", "stream", "bucket"]
LOOPS = {kind: f"{kind}s" for kind in get_args(SourceKind)}  # of the sweeper, which read them
LOOK_WRITE_INTERVAL = timedelta(seconds=3)  # between two writes of looks that found nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRow:
    """The last look at a source that succeeded, and why a later one did not, empty if it did."""

    looked_at: datetime | None
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookRow:
    """How many deliveries were refused, and the last one."""

    refused: int
    refused_at: datetime | None
    refused_why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenFile:
    """A file as it was first seen with this `stamp`. A `handled` file was taken or refused."""

    stamp: str
    seen_at: datetime
    handled: bool


def write_source(connection: Connection, trigger: UUID, kind: str, location: str) -> None:
    """Have the sweeper read a source for a trigger. The caller has locked the row of the trigger."""
    connection.execute(
        """
        INSERT INTO runtime_triggersource (trigger, kind, place) VALUES (%s, %s, %s)
        ON CONFLICT (trigger) DO UPDATE SET kind = excluded.kind, place = excluded.place,
            looked_at = NULL, problem = '', cursor = '', not_before = NULL
        """,
        (trigger, kind, location),
    )


def delete_source(connection: Connection, trigger: UUID) -> None:
    """Read nothing for a trigger. The caller has locked the row of the trigger."""
    connection.execute("DELETE FROM runtime_triggersource WHERE trigger = %s", (trigger,))


def lock_next(
    connection: Connection, kind: str, passed: Sequence[UUID], now: datetime
) -> UUID | None:
    """Lock a source of an active trigger, unless another transaction has it; without those `passed`.

    Those without a problem come first, so a slow source delays no other.
    """
    row = connection.execute(
        """
        SELECT s.trigger FROM runtime_triggersource s JOIN runtime_trigger t ON t.id = s.trigger
        WHERE s.kind = %s AND t.state = 'active' AND s.trigger <> ALL(%s)
            AND (s.not_before IS NULL OR s.not_before <= %s)
        ORDER BY s.problem <> '' LIMIT 1 FOR NO KEY UPDATE OF s SKIP LOCKED
        """,
        (kind, list(passed), now),
    ).fetchone()
    return None if row is None else row[0]


def note_look(
    connection: Connection,
    trigger: UUID,
    problem: str,
    now: datetime,
    not_before: datetime | None = None,
) -> None:
    """Write the outcome of a look at a source that the caller has locked, if it is news, and when the next one is."""
    connection.execute(
        """
        UPDATE runtime_triggersource
        SET problem = %(problem)s,
            looked_at = CASE WHEN %(problem)s = '' THEN %(now)s ELSE looked_at END,
            not_before = %(not_before)s
        WHERE trigger = %(trigger)s AND (problem <> %(problem)s
            OR not_before IS DISTINCT FROM %(not_before)s
            OR problem = '' AND (looked_at IS NULL OR looked_at < %(before)s))
        """,
        {
            "trigger": trigger,
            "problem": problem,
            "now": now,
            "before": now - LOOK_WRITE_INTERVAL,
            "not_before": not_before,
        },
    )


def read_source(connection: Connection, trigger: UUID) -> SourceRow | None:
    """Return the last look at the source of a trigger, None without a source."""
    row = connection.execute(
        "SELECT looked_at, problem FROM runtime_triggersource WHERE trigger = %s", (trigger,)
    ).fetchone()
    return None if row is None else pool.decode_row(SourceRow, row)


def read_cursor(connection: Connection, trigger: UUID) -> str:
    """Return the name after which the next look begins, empty for the first one."""
    row = connection.execute(
        "SELECT cursor FROM runtime_triggersource WHERE trigger = %s", (trigger,)
    ).fetchone()
    return "" if row is None else str(row[0])


def set_cursor(connection: Connection, trigger: UUID, cursor: str) -> None:
    """Have the next look begin after this name. The caller has locked the source."""
    connection.execute(
        "UPDATE runtime_triggersource SET cursor = %s WHERE trigger = %s AND cursor <> %s",
        (cursor, trigger, cursor),
    )


def write_webhook(connection: Connection, trigger: UUID, address: str) -> None:
    """Give a trigger this address in place of an earlier one. The caller has locked the row of the trigger."""
    connection.execute(
        """
        INSERT INTO runtime_triggerwebhook (trigger, address) VALUES (%s, %s)
        ON CONFLICT (trigger) DO UPDATE SET address = excluded.address,
            refused = 0, refused_at = NULL, refused_why = ''
        """,
        (trigger, address),
    )


def delete_webhook(connection: Connection, trigger: UUID) -> None:
    """Remove the address of a trigger. The caller has locked the row of the trigger."""
    connection.execute("DELETE FROM runtime_triggerwebhook WHERE trigger = %s", (trigger,))


def find_trigger_at(connection: Connection, address: str) -> UUID | None:
    """Return the trigger with this address."""
    row = connection.execute(
        "SELECT trigger FROM runtime_triggerwebhook WHERE address = %s", (address,)
    ).fetchone()
    return None if row is None else row[0]


def read_webhook(connection: Connection, trigger: UUID) -> WebhookRow | None:
    """Return the deliveries that were refused, None without a webhook."""
    row = connection.execute(
        "SELECT refused, refused_at, refused_why FROM runtime_triggerwebhook WHERE trigger = %s",
        (trigger,),
    ).fetchone()
    return None if row is None else pool.decode_row(WebhookRow, row)


def refuse(connection: Connection, address: str, reason: str) -> None:
    """Count a delivery that was refused."""
    connection.execute(
        """
        UPDATE runtime_triggerwebhook
        SET refused = refused + 1, refused_at = clock_timestamp(), refused_why = %s
        WHERE address = %s
        """,
        (reason, address),
    )


def list_seen_files(connection: Connection, trigger: UUID, folder: str) -> dict[str, SeenFile]:
    """Return the files that the last look saw, by name."""
    rows = connection.execute(
        """
        SELECT name, stamp, seen_at, done FROM runtime_watchedfile
        WHERE trigger = %s AND folder = %s AND gone_at IS NULL
        """,
        (trigger, folder),
    )
    return {name: pool.decode_row(SeenFile, columns) for name, *columns in rows.fetchall()}


def list_stamps(
    connection: Connection, trigger: UUID, folder: str, names: Sequence[str]
) -> dict[str, str]:
    """Return the stamps of those files that are there."""
    rows = connection.execute(
        """
        SELECT name, stamp FROM runtime_watchedfile
        WHERE trigger = %s AND folder = %s AND name = ANY(%s) AND gone_at IS NULL
        """,
        (trigger, folder, list(names)),
    )
    return dict(rows.fetchall())


def record_missing_between(
    connection: Connection,
    trigger: UUID,
    folder: str,
    names: Sequence[str],
    now: datetime,
    *,
    after: str,
    end: str,
) -> None:
    """Write that all but these names are gone, of those after one up to another; without an `end`, to the last."""
    connection.execute(
        """
        UPDATE runtime_watchedfile SET gone_at = %(now)s
        WHERE trigger = %(trigger)s AND folder = %(folder)s AND gone_at IS NULL
            AND name COLLATE "C" > %(after)s AND (%(end)s = '' OR name COLLATE "C" <= %(end)s)
            AND name <> ALL(%(names)s)
        """,
        {
            "now": now,
            "trigger": trigger,
            "folder": folder,
            "names": list(names),
            "after": after,
            "end": end,
        },
    )


def record_seen(
    connection: Connection, trigger: UUID, folder: str, stamps: Mapping[str, str], now: datetime
) -> None:
    """Write files that are new, or not as they were."""
    if not stamps:
        return
    connection.execute(
        """
        INSERT INTO runtime_watchedfile (trigger, folder, name, stamp, seen_at)
        SELECT %s, %s, name, stamp, %s FROM unnest(%s::text[], %s::text[]) AS f (name, stamp)
        ON CONFLICT (trigger, folder, name) DO UPDATE
        SET stamp = excluded.stamp, seen_at = excluded.seen_at, done = false, gone_at = NULL
        """,
        (trigger, folder, now, list(stamps), list(stamps.values())),
    )


def record_missing(
    connection: Connection, trigger: UUID, folder: str, names: Sequence[str], now: datetime
) -> None:
    """Write that files are gone. If they come back with the same content, they are the same files."""
    if not names:
        return
    connection.execute(
        """
        UPDATE runtime_watchedfile SET gone_at = %s
        WHERE trigger = %s AND folder = %s AND name = ANY(%s)
        """,
        (now, trigger, folder, list(names)),
    )


def record_taken(
    connection: Connection, trigger: UUID, folder: str, name: str, digest: str
) -> bool:
    """Write that a file is done. Return whether its content is not the one that was taken before."""
    # RETURNING knows only the new values of `f`, so the statement joins the row as it was, `b`.
    row = connection.execute(
        """
        UPDATE runtime_watchedfile f SET done = true, digest = %(digest)s
        FROM runtime_watchedfile b
        WHERE f.trigger = %(trigger)s AND f.folder = %(folder)s AND f.name = %(name)s
            AND (b.trigger, b.folder, b.name) = (f.trigger, f.folder, f.name)
        RETURNING b.digest <> %(digest)s
        """,
        {"trigger": trigger, "folder": folder, "name": name, "digest": digest},
    ).fetchone()
    return row is None or bool(row[0])


def prune_files(connection: Connection) -> int:
    """Delete some files that are long gone, and those of folders that no trigger reads. Returns how many."""
    return connection.execute(
        """
        DELETE FROM runtime_watchedfile w USING (
            SELECT f.trigger, f.folder, f.name FROM runtime_watchedfile f
            WHERE f.gone_at < clock_timestamp() - %s * interval '1 day' OR NOT EXISTS (
                SELECT FROM runtime_triggersource s WHERE s.trigger = f.trigger AND s.place = f.folder)
            LIMIT %s FOR UPDATE SKIP LOCKED) old
        WHERE (w.trigger, w.folder, w.name) = (old.trigger, old.folder, old.name)
        """,
        (KEPT_DAYS, PRUNED),
    ).rowcount

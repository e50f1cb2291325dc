"""Stores the files of watched folders and buckets as the last look saw them, and which of them were taken."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from runtime.store.pool import Connection
from runtime.store.tables.external_events import KEPT_DAYS, PRUNED


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenFile:
    """A file as it was first seen with this `stamp`. A file that is `done` was taken or refused."""

    stamp: str
    seen_at: datetime
    done: bool


def known(connection: Connection, trigger: UUID, folder: str) -> dict[str, SeenFile]:
    """Return the files that the last look saw, by name."""
    rows = connection.execute(
        """
        SELECT name, stamp, seen_at, done FROM runtime_watchedfile
        WHERE trigger = %s AND folder = %s AND gone_at IS NULL
        """,
        (trigger, folder),
    )
    return {
        name: SeenFile(stamp=stamp, seen_at=seen_at, done=done)
        for name, stamp, seen_at, done in rows.fetchall()
    }


def stamps(
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


def miss_between(
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


def see(
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


def miss(
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


def take(connection: Connection, trigger: UUID, folder: str, name: str, digest: str) -> bool:
    """Write that a file is done. Return whether its content is not the one that was taken before."""
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


def prune(connection: Connection) -> int:
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

"""Stores the prune mark: the position up to which a journal was deleted, with a MAC.

Entries are deleted from the beginning of a journal only, after all of them were verified. The mark has the position
and the MAC of the last deleted entry, so the rest is verified from there. A journal that lost entries without a mark
does not verify, and only a process with the key can write one.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from runtime.errors import Tampered
from runtime.keyring import macs, purposes
from runtime.keyring.macs import Seal
from runtime.store.pool import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneMark:
    """Entries up to `position`, whose MAC was `head`, were deleted at `at`. A complete journal has position 0."""

    position: int = 0
    head: str = ""
    at: datetime | None = None


UNPRUNED = PruneMark()


def read(connection: Connection, run: UUID) -> PruneMark:
    """Read the mark of a run. Raises Tampered, KeyMissing."""
    row = connection.execute(
        "SELECT position, head, at, mac, key_id FROM runtime_pruning WHERE run_id = %s", (run,)
    ).fetchone()
    if row is None:
        return UNPRUNED
    mark = PruneMark(position=row[0], head=row[1], at=row[2])
    if not macs.verify(purposes.JOURNAL, Seal(mac=row[3], key_id=row[4]), *_parts(run, mark)):
        raise Tampered("the prune mark of the journal does not verify")
    return mark


def write(connection: Connection, run: UUID, *, position: int, head: str) -> datetime:
    """Write the mark in the transaction that deletes the entries, and return its time."""
    row = connection.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None  # a SELECT without FROM has one row
    mark = PruneMark(position=position, head=head, at=row[0])
    seal = macs.seal(purposes.JOURNAL, *_parts(run, mark))
    connection.execute(
        """
        INSERT INTO runtime_pruning (run_id, position, head, at, mac, key_id)
        VALUES (%s, %s, %s, %s, %s, %s)
        ON CONFLICT (run_id) DO UPDATE SET position = excluded.position, head = excluded.head,
            at = excluded.at, mac = excluded.mac, key_id = excluded.key_id
        """,
        (run, mark.position, mark.head, mark.at, seal.mac, seal.key_id),
    )
    assert mark.at is not None
    return mark.at


def delete(connection: Connection, run: UUID) -> None:
    """Delete the mark of a run whose whole journal was restored."""
    connection.execute("DELETE FROM runtime_pruning WHERE run_id = %s", (run,))


def _parts(run: UUID, mark: PruneMark) -> tuple[str, ...]:
    """Return the MAC's parts. An entry's parts begin with the run's id, so neither passes for the other."""
    at = "" if mark.at is None else mark.at.astimezone(UTC).isoformat()
    return ("pruned", str(run), str(mark.position), mark.head, at)

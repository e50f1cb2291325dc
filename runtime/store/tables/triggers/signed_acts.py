"""Stores the acts of people on schedules and triggers, under a MAC; of each object the newest act counts.

An act holds the whole object after it, with its owner and makers. So a program that only writes to Postgres cannot
make one, change one, or start runs of another person with it.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from runtime.errors import Tampered
from runtime.keyring import macs, purposes
from runtime.keyring.macs import Seal
from runtime.store import pool
from runtime.store.pool import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAct:
    """One act of a person, verified. `by` is None for the command line."""

    seq: int
    act: str
    by: str | None
    at: datetime
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedActs:
    """The acts on one kind of object. `of` is the kind: the column of its id, its word, and a part of the MAC."""

    table: str
    of: str

    def add(
        self,
        connection: Connection,
        id: UUID,
        *,
        act: str,
        by: str | None,
        token: str | None,
        body: str,
    ) -> None:
        """Sign and add an act. The caller has locked the row of the object."""
        last = connection.execute(
            f"SELECT coalesce(max(seq), 0) FROM {self.table} WHERE {self.of} = %s", (id,)
        ).fetchone()
        assert last is not None  # an aggregate has one row
        one = StoredAct(seq=last[0] + 1, act=act, by=by, at=pool.now(connection), body=body)
        seal = macs.seal(purposes.JOURNAL, *self._parts(id, one))
        connection.execute(
            f"""
            INSERT INTO {self.table} ({self.of}, seq, act, by, token, at, body, mac, key_id)
            VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)
            """,
            (id, one.seq, act, by, token, one.at, body, seal.mac, seal.key_id),
        )

    def newest(self, connection: Connection, id: UUID, most: int) -> list[StoredAct]:
        """Read the newest acts, the newest first. Raises Tampered, KeyMissing."""
        rows = connection.execute(
            f"""
            SELECT seq, act, by, at, body, mac, key_id FROM {self.table} WHERE {self.of} = %s
            ORDER BY seq DESC LIMIT %s
            """,
            (id, most),
        ).fetchall()
        found = [self._verified(id, row) for row in rows]
        if not found:
            raise Tampered(f"the {self.of} has no act")
        return found

    def _verified(self, id: UUID, row: Any) -> StoredAct:
        seq, act, by, at, body, mac, key_id = row
        one = StoredAct(seq=seq, act=act, by=by, at=at, body=body)
        if not macs.verify(purposes.JOURNAL, Seal(mac=mac, key_id=key_id), *self._parts(id, one)):
            raise Tampered(f"the {self.of} does not verify")
        return one

    def _parts(self, id: UUID, one: StoredAct) -> tuple[str, ...]:
        """Return the MAC's parts. An entry's parts begin with a run's id, so neither passes for the other."""
        at = one.at.astimezone(UTC).isoformat()
        return (self.of, str(id), str(one.seq), one.act, one.by or "", at, one.body)

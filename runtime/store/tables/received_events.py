"""Stores events as they were received, under a MAC, for triggers: who can only write to Postgres cannot forge one.

The sender of an event is in the origin of the runs that it starts, so the MAC covers the name too.
"""

import json
from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from typing import Any

from runtime.errors import Tampered
from runtime.keyring import purposes, signatures
from runtime.keyring.signatures import Seal
from runtime.store import pool
from runtime.store.pool import Connection

_FIELDS = "e.key, e.source, e.event_id, e.name, e.subject, e.data, e.by, e.at, e.mac, e.key_id"
KEPT_DAYS = 30  # days an id is kept; after that the same id counts as new
PRUNED = 1_000  # rows that one statement deletes, here and of received events


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedEvent:
    """An event. `source` and `subject` are empty without one, `by` is None for a webhook; `data` is JSON."""

    key: str
    source: str
    id: str
    name: str
    subject: str
    data: str
    by: str | None
    at: datetime

    @property
    def facts(self) -> dict[str, Any]:
        """What expressions of triggers read."""
        return {
            "id": self.id,
            "source": self.source,
            "name": self.name,
            "subject": self.subject,
            "time": self.at.astimezone(UTC).isoformat(),
            "data": json.loads(self.data),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalEventRow:
    """A stored event. `waits` counts the waits it ended; `digest` is that of its name and data."""

    id: str
    name: str
    digest: str
    waits: int
    at: datetime


def insert(connection: Connection, event: VerifiedEvent, *, token: str | None = None) -> int | None:
    """Sign and keep an event. Return its number, or None if an event with this key is kept."""
    seal = signatures.seal(purposes.JOURNAL, *_collect_mac_parts(event))
    row = connection.execute(
        """
        INSERT INTO runtime_receivedevent
            (key, source, event_id, name, subject, data, by, at, token, mac, key_id)
        VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT (key) DO NOTHING
        RETURNING seq
        """,
        (*astuple(event), token, seal.mac, seal.key_id),
    ).fetchone()
    return None if row is None else int(row[0])


def is_kept(connection: Connection, keys: list[str], since: datetime) -> bool:
    """Say whether an event with one of these keys was received after this time."""
    row = connection.execute(
        "SELECT 1 FROM runtime_receivedevent WHERE key = ANY(%s) AND at > %s LIMIT 1", (keys, since)
    ).fetchone()
    return row is not None


def read(connection: Connection, number: int) -> VerifiedEvent:
    """Read an event. Raises Tampered, KeyMissing."""
    row = connection.execute(
        f"SELECT {_FIELDS} FROM runtime_receivedevent e WHERE e.seq = %s", (number,)
    ).fetchone()
    if row is None:
        raise Tampered("the event is gone")
    *columns, mac, key_id = row
    event = pool.decode_row(VerifiedEvent, columns)
    if not signatures.verify(
        purposes.JOURNAL, Seal(mac=mac, key_id=key_id), *_collect_mac_parts(event)
    ):
        raise Tampered("the event does not verify")
    return event


def prune(connection: Connection) -> int:
    """Delete some events that are old enough and that no trigger waits with. Returns how many."""
    return connection.execute(
        """
        DELETE FROM runtime_receivedevent WHERE seq = ANY(ARRAY(
            SELECT e.seq FROM runtime_receivedevent e
            WHERE e.at < clock_timestamp() - %s * interval '1 day' AND NOT EXISTS (
                SELECT FROM runtime_occurrence o
                WHERE o.number = e.seq AND o.kind = 'event' AND o.state IN ('new', 'waiting'))
            ORDER BY e.at LIMIT %s))
        """,
        (KEPT_DAYS, PRUNED),
    ).rowcount


def claim_id(
    connection: Connection, *, id: str, name: str, digest: str, by: str, token: str | None
) -> bool:
    """Record the event. False if its id is used. Waits for another transaction that uses the id at the same time."""
    row = {"id": id, "name": name, "digest": digest, "waits": 0, "sent_by": by, "token": token}
    return pool.insert(connection, "runtime_externalevent", row, "(id) DO NOTHING")


def count_waits(connection: Connection, id: str, waits: int) -> None:
    """Record how many waits it ended, in the transaction that ends them."""
    connection.execute("UPDATE runtime_externalevent SET waits = %s WHERE id = %s", (waits, id))


def read_id(connection: Connection, id: str) -> ExternalEventRow:
    """Return the event with this id. Raises LookupError."""
    row = connection.execute(
        "SELECT id, name, digest, waits, at FROM runtime_externalevent WHERE id = %s", (id,)
    ).fetchone()
    if row is None:
        raise LookupError(f"there is no event {id}")
    return pool.decode_row(ExternalEventRow, row)


def prune_ids(connection: Connection) -> int:
    """Delete some events that are old enough. Returns how many.

    They are selected once: with `IN`, Postgres may repeat the selection for each row, and then the limit would not
    hold.
    """
    return connection.execute(
        """
        DELETE FROM runtime_externalevent WHERE id = ANY(ARRAY(
            SELECT id FROM runtime_externalevent
            WHERE at < clock_timestamp() - %s * interval '1 day' LIMIT %s FOR UPDATE SKIP LOCKED))
        """,
        (KEPT_DAYS, PRUNED),
    ).rowcount


def _collect_mac_parts(event: VerifiedEvent) -> tuple[str, ...]:
    """Return the MAC's parts. An entry's parts begin with a run's id, so neither passes for the other."""
    at = event.at.astimezone(UTC).isoformat()
    texts = (event.key, event.source, event.id, event.name, event.subject)
    return ("event", *texts, "webhook" if event.by is None else f"by {event.by}", at, event.data)

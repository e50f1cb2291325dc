"""Stores events as they were received, under a MAC, for triggers: a program that only writes to Postgres forges nevent.

The sender of an event is in the origin of the runs that it starts, so the MAC covers the name too.
"""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from runtime.errors import Tampered
from runtime.keyring import macs, purposes
from runtime.keyring.macs import Seal
from runtime.store import pool
from runtime.store.pool import Connection
from runtime.store.tables.external_events import KEPT_DAYS, PRUNED

_FIELDS = "e.key, e.source, e.event_id, e.name, e.subject, e.data, e.by, e.at, e.mac, e.key_id"


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


def insert(
    connection: Connection,
    *,
    key: str,
    source: str,
    id: str,
    name: str,
    subject: str,
    data: Any,
    by: str | None,
    token: str | None,
) -> int | None:
    """Sign and keep an event. Return its number, or None if an event with this key is kept."""
    event = VerifiedEvent(
        key=key,
        source=source,
        id=id,
        name=name,
        subject=subject,
        data=json.dumps(data, ensure_ascii=False),
        by=by,
        at=pool.now(connection),
    )
    seal = macs.seal(purposes.JOURNAL, *_parts(event))
    row = connection.execute(
        """
        INSERT INTO runtime_receivedevent
            (key, source, event_id, name, subject, data, by, token, at, mac, key_id)
        VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT (key) DO NOTHING
        RETURNING seq
        """,
        (key, source, id, name, subject, event.data, by, token, event.at, seal.mac, seal.key_id),
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
    *fields, mac, key_id = row
    names = ("key", "source", "id", "name", "subject", "data", "by", "at")
    event = VerifiedEvent(**dict(zip(names, fields, strict=True)))
    if not macs.verify(purposes.JOURNAL, Seal(mac=mac, key_id=key_id), *_parts(event)):
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


def _parts(event: VerifiedEvent) -> tuple[str, ...]:
    """Return the MAC's parts. An entry's parts begin with a run's id, so neither passes for the other."""
    at = event.at.astimezone(UTC).isoformat()
    texts = (event.key, event.source, event.id, event.name, event.subject)
    return ("event", *texts, "webhook" if event.by is None else f"by {event.by}", at, event.data)

"""Stores the acts of people on triggers, under a MAC; of each trigger the newest act counts.

An act holds the whole trigger after it, with its owner and makers. So a program that only writes to Postgres cannot
make one, change one, or start runs of another person with it.
"""

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from runtime.errors import Tampered
from runtime.keyring import macs, purposes
from runtime.keyring.macs import Seal
from runtime.keyring.row_text import row_text
from runtime.store import pool
from runtime.store.pool import Connection
from runtime.store.tables.triggers.triggers import TriggerRow


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAct:
    """One act of a person, verified."""

    seq: int
    act: str
    by: str
    at: datetime
    body: str


def add(
    connection: Connection, trigger: UUID, *, act: str, by: str, token: str | None, body: str
) -> None:
    """Sign and add an act. The caller has locked the row of the trigger."""
    last = connection.execute(
        "SELECT coalesce(max(seq), 0) FROM runtime_triggeract WHERE trigger = %s", (trigger,)
    ).fetchone()
    assert last is not None  # an aggregate has one row
    added = StoredAct(seq=last[0] + 1, act=act, by=by, at=pool.now(connection), body=body)
    seal = macs.seal(purposes.JOURNAL, _text(trigger, added))
    connection.execute(
        """
        INSERT INTO runtime_triggeract (trigger, seq, act, by, token, at, body, mac, key_id)
        VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)
        """,
        (trigger, added.seq, act, by, token, added.at, body, seal.mac, seal.key_id),
    )


def newest(connection: Connection, trigger: TriggerRow, limit: int) -> list[StoredAct]:
    """Read the newest acts, the newest first. Raises Tampered, KeyMissing."""
    rows = connection.execute(
        """
        SELECT seq, act, by, at, body, mac, key_id FROM runtime_triggeract WHERE trigger = %s
        ORDER BY seq DESC LIMIT %s
        """,
        (trigger.id, limit),
    ).fetchall()
    if not rows:
        raise Tampered(f"the {trigger.kind.noun} has no act")
    return [_verified(trigger, row) for row in rows]


def _verified(trigger: TriggerRow, row: Any) -> StoredAct:
    seq, act, by, at, body, mac, key_id = row
    stored = StoredAct(seq=seq, act=act, by=by, at=at, body=body)
    seal = Seal(mac=mac, key_id=key_id)
    if not macs.verify(purposes.JOURNAL, seal, _text(trigger.id, stored)):
        raise Tampered(f"the {trigger.kind.noun} does not verify")
    return stored


def _text(trigger: UUID, act: StoredAct) -> str:
    """Return the text under the MAC. Those of entries begin with a run's id, so neither passes for the other."""
    return row_text("trigger", {"trigger": trigger, **asdict(act)})

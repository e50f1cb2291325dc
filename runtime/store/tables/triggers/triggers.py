"""Stores triggers: their row, and the signed acts of people, of which the newest says which runs start."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from runtime.store.pool import Connection
from runtime.store.tables.triggers.signed_acts import SignedActs, StoredAct

MAX_LISTED = 500

_ROW = "t.id, t.name, t.agent, t.owner, t.event, t.state, t.problem"
_ACTS = SignedActs(table="runtime_triggeract", of="trigger")


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerRow:
    """The row of a trigger."""

    id: UUID
    name: str
    agent: str
    owner: str
    event: str
    state: str
    problem: str


def insert(
    connection: Connection, trigger: UUID, *, name: str, agent: str, owner: str, event: str
) -> bool:
    """Add a trigger. Return False if there is one with this id."""
    done = connection.execute(
        """
        INSERT INTO runtime_trigger (id, name, agent, owner, event) VALUES (%s, %s, %s, %s, %s)
        ON CONFLICT DO NOTHING
        """,
        (trigger, name, agent, owner, event),
    )
    return done.rowcount == 1


def write(connection: Connection, trigger: UUID, **columns: Any) -> None:
    """Change columns of a row that the caller has locked."""
    places = ", ".join(f"{name} = %({name})s" for name in columns)
    connection.execute(
        f"UPDATE runtime_trigger SET {places} WHERE id = %(id)s", {**columns, "id": trigger}
    )


def lock(connection: Connection, trigger: UUID) -> TriggerRow | None:
    """Lock a trigger until the transaction ends, and return it."""
    return _one(
        connection.execute(
            f"SELECT {_ROW} FROM runtime_trigger t WHERE t.id = %s FOR NO KEY UPDATE", (trigger,)
        ).fetchone()
    )


def lock_due(connection: Connection, now: datetime, passed: list[UUID]) -> TriggerRow | None:
    """Lock a trigger with new events or one that is due, unless another transaction has it; without those `passed`."""
    return _one(
        connection.execute(
            f"""
            SELECT {_ROW} FROM runtime_trigger t
            WHERE t.state = 'active' AND t.id <> ALL(%(passed)s)
                AND (t.not_before IS NULL OR t.not_before <= %(now)s)
                AND (t.due_at <= %(now)s OR EXISTS (
                    SELECT FROM runtime_triggerevent e WHERE e.trigger = t.id AND e.state = 'new'))
            LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED
            """,
            {"now": now, "passed": passed},
        ).fetchone()
    )


def listed(connection: Connection, owner: str | None) -> tuple[list[TriggerRow], bool]:
    """List the newest triggers, or those of one owner: live ones first, with the problems of their sources.

    Say too whether there are more than MAX_LISTED.
    """
    found = connection.execute(
        f"""
        SELECT t.id, t.name, t.agent, t.owner, t.event, t.state,
            coalesce(nullif(t.problem, ''), s.problem, '')
        FROM runtime_trigger t LEFT JOIN runtime_triggersource s ON s.trigger = t.id
        WHERE %(owner)s::text IS NULL OR t.owner = %(owner)s
        ORDER BY t.state = 'ended', t.created_at DESC LIMIT {MAX_LISTED + 1}
        """,
        {"owner": owner},
    ).fetchall()
    return [_row(row) for row in found[:MAX_LISTED]], len(found) > MAX_LISTED


def read(connection: Connection, trigger: UUID) -> TriggerRow | None:
    """Read a trigger without locking it."""
    return _one(
        connection.execute(
            f"SELECT {_ROW} FROM runtime_trigger t WHERE t.id = %s", (trigger,)
        ).fetchone()
    )


def add_act(
    connection: Connection,
    trigger: UUID,
    *,
    act: str,
    by: str | None,
    token: str | None,
    body: str,
) -> None:
    """Sign and add an act. The caller has locked the row of the trigger."""
    _ACTS.add(connection, trigger, act=act, by=by, token=token, body=body)


def acts(connection: Connection, trigger: UUID, most: int) -> list[StoredAct]:
    """Read the newest acts, the newest first. Raises Tampered, KeyMissing."""
    return _ACTS.newest(connection, trigger, most)


def _one(row: Any) -> TriggerRow | None:
    return None if row is None else _row(row)


def _row(row: Any) -> TriggerRow:
    names = ("id", "name", "agent", "owner", "event", "state", "problem")
    return TriggerRow(**dict(zip(names, row, strict=True)))

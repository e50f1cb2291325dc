"""Stores triggers: a row each, by which a sweeper finds the due ones. The newest signed act says which runs start.

An act of a person is stored under a MAC and holds the whole trigger after it, with its owner and makers. So a program
that only writes to Postgres cannot make a trigger, change one, or start runs of another person with it.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from runtime.errors import Tampered
from runtime.keyring import purposes, signatures
from runtime.keyring.signatures import Seal, encode_row
from runtime.store import pool
from runtime.store.pool import Connection

MAX_LISTED = 500

_NAMES = ("id", "kind", "name", "agent", "owner", "event", "state", "next_at", "due_at", "problem")
_ROW = ", ".join(f"t.{name}" for name in _NAMES)
_DUE = """
    t.kind = %(kind)s AND t.id <> ALL(%(passed)s) AND (t.not_before IS NULL OR t.not_before <= %(now)s)
    AND (t.due_at <= %(now)s OR t.state = 'active' AND EXISTS (
        SELECT FROM runtime_occurrence o WHERE o.trigger = t.id AND o.state = 'new'))
"""


class TriggerKind(StrEnum):
    """What starts the runs of a trigger."""

    SCHEDULE = "schedule"  # its times
    EVENT = "event"  # events that people send, deliveries to its webhook, and what its source holds

    @property
    def noun(self) -> str:
        """What people call such a trigger."""
        return "schedule" if self is TriggerKind.SCHEDULE else "trigger"


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerRow:
    """The row of a trigger. `event` is empty for a schedule.

    `next_at` is the first time of a schedule that was not handled. A sweeper looks at the trigger at `due_at`.
    """

    id: UUID
    kind: TriggerKind
    name: str
    agent: str
    owner: str
    event: str
    state: str
    next_at: datetime | None
    due_at: datetime | None
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAct:
    """One act of a person, verified."""

    seq: int
    act: str
    by: str
    at: datetime
    body: str


def insert(connection: Connection, trigger: UUID, **columns: str) -> bool:
    """Add a trigger. Return False if there is one with this id."""
    return pool.insert(connection, "runtime_trigger", {"id": trigger, **columns})


def write(connection: Connection, trigger: UUID, **columns: Any) -> None:
    """Change columns of a row that the caller has locked."""
    assignments = ", ".join(f"{name} = %({name})s" for name in columns)
    connection.execute(
        f"UPDATE runtime_trigger SET {assignments} WHERE id = %(id)s", {**columns, "id": trigger}
    )


def read(connection: Connection, trigger: UUID) -> TriggerRow | None:
    """Read a trigger without locking it."""
    return _find_row(connection, "t.id = %(id)s", {"id": trigger})


def lock(connection: Connection, trigger: UUID) -> TriggerRow | None:
    """Lock a trigger until the transaction ends, and return it."""
    return _find_row(connection, "t.id = %(id)s FOR NO KEY UPDATE", {"id": trigger})


def lock_due(
    connection: Connection, kind: TriggerKind, now: datetime, passed: Sequence[UUID]
) -> TriggerRow | None:
    """Lock a trigger with new events, or the one that is due longest, unless another transaction has it.

    Those `passed` are left out.
    """
    return _find_row(
        connection,
        f"{_DUE} ORDER BY t.due_at LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED",
        {"kind": kind, "now": now, "passed": list(passed)},
    )


def has_due_trigger(connection: Connection, kind: TriggerKind, now: datetime) -> bool:
    """Tell whether a trigger of this kind is due or has new events."""
    row = connection.execute(
        f"SELECT EXISTS (SELECT FROM runtime_trigger t WHERE {_DUE})",
        {"kind": kind, "now": now, "passed": []},
    ).fetchone()
    assert row is not None  # a SELECT without FROM has one row
    return bool(row[0])


def list_newest(
    connection: Connection, kind: TriggerKind, owner: str | None
) -> tuple[list[TriggerRow], bool]:
    """List the newest triggers, or those of one owner, with the problems of their sources.

    Live ones come first, by their next time. Say too whether there are more than MAX_LISTED.
    """
    rows = connection.execute(
        f"""
        SELECT {_ROW.removesuffix("t.problem")} coalesce(nullif(t.problem, ''), s.problem, '')
        FROM runtime_trigger t LEFT JOIN runtime_triggersource s ON s.trigger = t.id
        WHERE t.kind = %(kind)s AND (%(owner)s::text IS NULL OR t.owner = %(owner)s)
        ORDER BY t.state = 'ended', t.next_at NULLS LAST, t.created_at DESC LIMIT {MAX_LISTED + 1}
        """,
        {"kind": kind, "owner": owner},
    ).fetchall()
    return [_decode_trigger_row(row) for row in rows[:MAX_LISTED]], len(rows) > MAX_LISTED


def add_act(
    connection: Connection, trigger: UUID, *, act: str, by: str, token: str | None, body: str
) -> None:
    """Sign and add an act. The caller has locked the row of the trigger."""
    last = connection.execute(
        "SELECT coalesce(max(seq), 0) FROM runtime_triggeract WHERE trigger = %s", (trigger,)
    ).fetchone()
    assert last is not None  # an aggregate has one row
    added = StoredAct(seq=last[0] + 1, act=act, by=by, at=pool.read_clock(connection), body=body)
    seal = signatures.seal(purposes.JOURNAL, _encode_act(trigger, added))
    connection.execute(
        """
        INSERT INTO runtime_triggeract (trigger, seq, act, by, token, at, body, mac, key_id)
        VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)
        """,
        (trigger, added.seq, act, by, token, added.at, body, seal.mac, seal.key_id),
    )


def list_newest_acts(connection: Connection, trigger: TriggerRow, limit: int) -> list[StoredAct]:
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
    acts = []
    for seq, act, by, at, body, mac, key_id in rows:
        stored = StoredAct(seq=seq, act=act, by=by, at=at, body=body)
        seal = Seal(mac=mac, key_id=key_id)
        if not signatures.verify(purposes.JOURNAL, seal, _encode_act(trigger.id, stored)):
            raise Tampered(f"the {trigger.kind.noun} does not verify")
        acts.append(stored)
    return acts


def _find_row(
    connection: Connection, condition: str, parameters: dict[str, Any]
) -> TriggerRow | None:
    row = connection.execute(
        f"SELECT {_ROW} FROM runtime_trigger t WHERE {condition}", parameters
    ).fetchone()
    return None if row is None else _decode_trigger_row(row)


def _decode_trigger_row(row: Any) -> TriggerRow:
    columns = dict(zip(_NAMES, row, strict=True))
    return TriggerRow(**{**columns, "kind": TriggerKind(columns["kind"])})


def _encode_act(trigger: UUID, act: StoredAct) -> str:
    """Return the text under the MAC. Those of entries begin with a run's id, so neither passes for the other."""
    return encode_row("trigger", {"trigger": trigger, **asdict(act)})

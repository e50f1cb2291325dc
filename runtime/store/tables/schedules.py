"""Stores schedules: their row with the next time, and the signed acts of people, of which the newest counts.

An act holds the whole schedule after it, with its owner and makers, under a MAC. So a program that only writes to
Postgres cannot make a schedule, change one, or start runs of another person with it. The row is found by its time;
everything that decides what starts is read from the act.
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

MAX_LISTED = 500

_ROW = "s.id, s.name, s.agent, s.owner, s.state, s.next_at, s.due_at, s.problem"
_ACT = "a.seq, a.act, a.by, a.at, a.body, a.mac, a.key_id"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRow:
    """The row of a schedule. `next_at` is its first time that was not handled, `due_at` when that is looked at."""

    id: UUID
    name: str
    agent: str
    owner: str
    state: str
    next_at: datetime | None
    due_at: datetime | None
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAct:
    """One act of a person on a schedule, verified. `by` is None for the command line."""

    seq: int
    act: str
    by: str | None
    at: datetime
    body: str


def insert(connection: Connection, schedule: UUID, *, name: str, agent: str, owner: str) -> bool:
    """Add a schedule without a time. Return False if there is one with this id."""
    done = connection.execute(
        """
        INSERT INTO runtime_schedule (id, name, agent, owner) VALUES (%s, %s, %s, %s)
        ON CONFLICT DO NOTHING
        """,
        (schedule, name, agent, owner),
    )
    return done.rowcount == 1


def write(connection: Connection, schedule: UUID, **columns: Any) -> None:
    """Change columns of a row that the caller has locked."""
    places = ", ".join(f"{name} = %({name})s" for name in columns)
    connection.execute(
        f"UPDATE runtime_schedule SET {places} WHERE id = %(id)s", {**columns, "id": schedule}
    )


def lock(connection: Connection, schedule: UUID) -> ScheduleRow | None:
    """Lock a schedule until the transaction ends, and return it."""
    row = connection.execute(
        f"SELECT {_ROW} FROM runtime_schedule s WHERE s.id = %s FOR NO KEY UPDATE", (schedule,)
    ).fetchone()
    return None if row is None else _row(row)


def lock_due(connection: Connection, now: datetime, passed: list[UUID]) -> ScheduleRow | None:
    """Lock the schedule that is due longest, unless another transaction has it; without those `passed`."""
    row = connection.execute(
        f"""
        SELECT {_ROW} FROM runtime_schedule s WHERE s.due_at <= %s AND s.id <> ALL(%s)
        ORDER BY s.due_at LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED
        """,
        (now, passed),
    ).fetchone()
    return None if row is None else _row(row)


def any_due(connection: Connection, now: datetime) -> bool:
    """Tell whether a schedule is due."""
    row = connection.execute(
        "SELECT EXISTS (SELECT FROM runtime_schedule WHERE due_at <= %s)", (now,)
    ).fetchone()
    assert row is not None  # a SELECT without FROM has one row
    return bool(row[0])


def listed(connection: Connection, owner: str | None) -> list[ScheduleRow]:
    """List the newest schedules, or those of one owner: live ones first, by their next time."""
    rows = connection.execute(
        f"""
        SELECT {_ROW} FROM runtime_schedule s WHERE %(owner)s::text IS NULL OR s.owner = %(owner)s
        ORDER BY s.state = 'ended', s.next_at NULLS LAST, s.id DESC LIMIT {MAX_LISTED}
        """,
        {"owner": owner},
    )
    return [_row(row) for row in rows.fetchall()]


def read(connection: Connection, schedule: UUID) -> ScheduleRow | None:
    """Read a schedule without locking it."""
    row = connection.execute(
        f"SELECT {_ROW} FROM runtime_schedule s WHERE s.id = %s", (schedule,)
    ).fetchone()
    return None if row is None else _row(row)


def add_act(
    connection: Connection,
    schedule: UUID,
    *,
    act: str,
    by: str | None,
    token: str | None,
    body: str,
) -> None:
    """Sign and add an act. The caller has locked the row of the schedule."""
    last = connection.execute(
        "SELECT coalesce(max(seq), 0) FROM runtime_scheduleact WHERE schedule = %s", (schedule,)
    ).fetchone()
    assert last is not None  # an aggregate has one row
    one = StoredAct(seq=last[0] + 1, act=act, by=by, at=pool.now(connection), body=body)
    seal = macs.seal(purposes.JOURNAL, *_parts(schedule, one))
    connection.execute(
        """
        INSERT INTO runtime_scheduleact (schedule, seq, act, by, token, at, body, mac, key_id)
        VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)
        """,
        (schedule, one.seq, act, by, token, one.at, body, seal.mac, seal.key_id),
    )


def acts(connection: Connection, schedule: UUID, most: int) -> list[StoredAct]:
    """Read the newest acts, the newest first. Raises Tampered, KeyMissing."""
    rows = connection.execute(
        f"""
        SELECT {_ACT} FROM runtime_scheduleact a WHERE a.schedule = %s ORDER BY a.seq DESC LIMIT %s
        """,
        (schedule, most),
    ).fetchall()
    found = [_act(schedule, row) for row in rows]
    if not found:
        raise Tampered("the schedule has no act")
    return found


def _act(schedule: UUID, row: Any) -> StoredAct:
    seq, act, by, at, body, mac, key_id = row
    one = StoredAct(seq=seq, act=act, by=by, at=at, body=body)
    if not macs.verify(purposes.JOURNAL, Seal(mac=mac, key_id=key_id), *_parts(schedule, one)):
        raise Tampered("the schedule does not verify")
    return one


def _parts(schedule: UUID, one: StoredAct) -> tuple[str, ...]:
    """Return the MAC's parts. An entry's parts begin with a run's id, so neither passes for the other."""
    at = one.at.astimezone(UTC).isoformat()
    return ("schedule", str(schedule), str(one.seq), one.act, one.by or "", at, one.body)


def _row(row: Any) -> ScheduleRow:
    names = ("id", "name", "agent", "owner", "state", "next_at", "due_at", "problem")
    return ScheduleRow(**dict(zip(names, row, strict=True)))

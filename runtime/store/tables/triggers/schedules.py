"""Stores schedules: their row with the next time, and the signed acts of people, of which the newest counts.

An act holds the whole schedule after it, with its owner and makers, under a MAC. So a program that only writes to
Postgres cannot make a schedule, change one, or start runs of another person with it. The row is found by its time;
everything that decides what starts is read from the act.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from runtime.store.pool import Connection
from runtime.store.tables.triggers.signed_acts import SignedActs, StoredAct

MAX_LISTED = 500

_ROW = "s.id, s.name, s.agent, s.owner, s.state, s.next_at, s.due_at, s.problem"
_ACTS = SignedActs(table="runtime_scheduleact", of="schedule")


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


def listed(connection: Connection, owner: str | None) -> tuple[list[ScheduleRow], bool]:
    """List the newest schedules, or those of one owner: live ones first, by their next time.

    Say too whether there are more than MAX_LISTED.
    """
    found = connection.execute(
        f"""
        SELECT {_ROW} FROM runtime_schedule s WHERE %(owner)s::text IS NULL OR s.owner = %(owner)s
        ORDER BY s.state = 'ended', s.next_at NULLS LAST, s.id DESC LIMIT {MAX_LISTED + 1}
        """,
        {"owner": owner},
    ).fetchall()
    return [_row(row) for row in found[:MAX_LISTED]], len(found) > MAX_LISTED


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
    _ACTS.add(connection, schedule, act=act, by=by, token=token, body=body)


def acts(connection: Connection, schedule: UUID, most: int) -> list[StoredAct]:
    """Read the newest acts, the newest first. Raises Tampered, KeyMissing."""
    return _ACTS.newest(connection, schedule, most)


def _row(row: Any) -> ScheduleRow:
    names = ("id", "name", "agent", "owner", "state", "next_at", "due_at", "problem")
    return ScheduleRow(**dict(zip(names, row, strict=True)))

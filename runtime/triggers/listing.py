"""What people read about schedules: the list, and one schedule with its next times, its history and its acts."""

import json
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Any
from uuid import UUID

from runtime.errors import KeyMissing, Tampered
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.store import pool
from runtime.store.pool import Connection
from runtime.store.tables.triggers import schedule_times, schedules
from runtime.store.tables.triggers.schedule_times import TimeRow
from runtime.store.tables.triggers.schedules import ScheduleRow
from runtime.triggers import changes, rights, schedule
from runtime.triggers.definition import Definition
from runtime.triggers.schedule import Status

NEXT = 5  # times that are shown ahead
HISTORY = 50  # past times on a page
ACTS = 20  # acts on a page


@dataclass(frozen=True, slots=True, kw_only=True)
class PastAct:
    """An act of a person. `detail` is the range of a back-fill, or the time of a manual run."""

    act: str
    by: str | None
    at: datetime
    detail: dict[str, str | int]

    @property
    def range(self) -> tuple[datetime, datetime] | None:
        """The range of a back-fill."""
        if "first" not in self.detail:
            return None
        first, until = (
            datetime.fromisoformat(str(self.detail[name])) for name in ("first", "until")
        )
        return first, until


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleView:
    """One schedule for a reader.

    `history` has at most HISTORY times, the newest first; `more` is where the earlier ones begin, None without any.
    """

    id: UUID
    status: str
    owner: str
    makers: tuple[str, ...]
    definition: Definition
    next_times: tuple[datetime, ...]
    history: tuple[TimeRow, ...]
    more: datetime | None
    last_failure: TimeRow | None
    acts: tuple[PastAct, ...]
    changeable: bool

    @property
    def waiting(self) -> int:
        """The number of times in this part of the history that wait."""
        return sum(one.state == "waiting" for one in self.history)


def rows(actor: Actor) -> tuple[list[ScheduleRow], bool]:
    """List the schedules that the actor may read: their own, or all as an admin; say too if there are more.

    Raise Forbidden.
    """
    owner = rights.owner_shown(actor)
    with pool.in_transaction() as connection:
        found, cut = schedules.listed(connection, owner)
    # The next time of a paused one is that when it was paused.
    shown = [one if one.state == Status.ACTIVE else replace(one, next_at=None) for one in found]
    return shown, cut


def one(id: UUID, actor: Actor, before: datetime | None = None) -> ScheduleView:
    """Read a schedule, with its history before a time. Raise Forbidden, NoSuchSchedule, Tampered, KeyMissing."""
    wiring.access().require(actor, "runs:read")
    with pool.in_transaction() as connection:
        row = changes.readable(connection, id, actor)
        return _view(connection, row, before, changeable=rights.may_change(row.owner, actor))


def input_schema(agent: str) -> dict[str, Any] | None:
    """Return the JSON Schema of an agent's input, None if there is no such agent."""
    wanted = wiring.catalogue().schema(agent)
    with pool.in_transaction() as connection:
        row = connection.execute(f"SELECT {wanted.sql}", wanted.parameters).fetchone()
    assert row is not None  # a SELECT without FROM has one row
    found: dict[str, Any] | None = None if row[0] is None else json.loads(row[0])
    return found


def problem_of(exc: Tampered | KeyMissing) -> str:
    """Say to a reader why a schedule cannot be shown."""
    return f"{exc}. It starts nothing."


def _view(
    connection: Connection, row: ScheduleRow, before: datetime | None, *, changeable: bool
) -> ScheduleView:
    kept = schedules.acts(connection, row.id, ACTS)
    found = schedule.of_act(row, kept[0].body)
    times = schedule_times.newest(connection, row.id, HISTORY + 1, before)
    shown = times[:HISTORY]
    coming = tuple[datetime, ...]()
    if row.next_at is not None and found.status is Status.ACTIVE:
        later = found.definition.calendar.after(row.next_at)
        coming = (row.next_at, *islice(later, NEXT - 1))
    return ScheduleView(
        id=row.id,
        status=row.state,
        owner=found.owner,
        makers=found.makers,
        definition=found.definition,
        next_times=coming,
        history=tuple(shown),
        more=shown[-1].at if len(times) > HISTORY else None,
        last_failure=schedule_times.last_failure(connection, row.id),
        acts=tuple(
            PastAct(
                act=one.act, by=one.by, at=one.at, detail=json.loads(one.body).get("detail", {})
            )
            for one in kept
        ),
        # One whose last time has passed can get another end.
        changeable=changeable and found.status is not Status.ENDED,
    )

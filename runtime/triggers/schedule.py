"""A schedule as its newest act says: its definition, who owns it, who made it, and whether it is paused or ended."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from runtime.core.machine.origin import merged
from runtime.errors import Tampered
from runtime.ports.access import Actor
from runtime.store.pool import Connection
from runtime.store.tables.triggers import schedules
from runtime.store.tables.triggers.schedules import ScheduleRow
from runtime.triggers import definition
from runtime.triggers.definition import Definition


class Status(StrEnum):
    """Whether a schedule starts runs."""

    ACTIVE = "active"  # its times start runs
    PAUSED = "paused"  # a person paused it: its times pass, until a person resumes it
    ENDED = "ended"  # a person ended it, or its last time has passed


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentSchedule:
    """A schedule. `owner` is the requester of its runs.

    `makers` are the people who made, changed, resumed or back-filled it: none of them decides in its runs.
    """

    owner: str
    makers: tuple[str, ...]
    status: Status
    definition: Definition


def current(connection: Connection, row: ScheduleRow) -> CurrentSchedule:
    """Read what the newest act says. Raises Tampered, KeyMissing."""
    return of_act(row, schedules.acts(connection, row.id, 1)[0].body)


def of_act(row: ScheduleRow, body: str) -> CurrentSchedule:
    """Return the schedule after an act. Raise Tampered if the row, which is not signed, has another owner.

    The owner in the row says who may read and change the schedule.
    """
    found = json.loads(body)
    if found["owner"] != row.owner:
        raise Tampered("the owner of the schedule is not the signed one")
    return CurrentSchedule(
        owner=found["owner"],
        makers=tuple(found["makers"]),
        status=Status(found["status"]),
        definition=definition.from_text(found["definition"]),
    )


def record(
    connection: Connection,
    schedule: UUID,
    act: str,
    after: CurrentSchedule,
    actor: Actor | None,
    detail: Mapping[str, str | int] | None = None,
) -> None:
    """Sign and add an act, with the schedule after it. `actor` None is the command line."""
    body = {
        "owner": after.owner,
        "makers": merged(after.makers),
        "status": after.status,
        "definition": definition.to_text(after.definition),
        **({"detail": dict(detail)} if detail else {}),
    }
    schedules.add_act(
        connection,
        schedule,
        act=act,
        by=None if actor is None else actor.person,
        token=None if actor is None else actor.token,
        body=json.dumps(body, ensure_ascii=False, sort_keys=True),
    )

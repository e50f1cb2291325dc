"""What people read about triggers: the list, one with its times or events and its acts, and what started a run."""

import json
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Any
from uuid import UUID

from runtime.errors import KeyMissing, Tampered
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.reads.workers import LATE_SECONDS
from runtime.store import pool
from runtime.store.pool import Connection
from runtime.store.tables import occurrences, trigger_rows, trigger_sources
from runtime.store.tables.trigger_rows import TriggerKind, TriggerRow
from runtime.triggers.changes import may_read, read_row
from runtime.triggers.event_definition import EventDefinition
from runtime.triggers.schedule_definition import ScheduleDefinition
from runtime.triggers.sources import SOURCES
from runtime.triggers.trigger import SignedTrigger, TriggerStatus, parse_act

NEXT = 5  # times that are shown ahead
HISTORY = 50  # times or events on a page
ACTS = 20  # acts on a page


@dataclass(frozen=True, slots=True, kw_only=True)
class PastAct:
    """An act of a person. `detail` is the range of a back-fill, the time of a manual run, or the event of a retry."""

    act: str
    by: str
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
class WebhookView:
    """The webhook of a trigger, without its address and secret, and the deliveries that were refused."""

    scheme: str
    header: str
    refused: int
    refused_at: datetime | None
    refused_why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceView:
    """What a trigger reads, the last look at it that succeeded, and why a later one did not. `late` if none did."""

    kind: str
    place: str
    looked_at: datetime | None
    problem: str
    late: bool

    @property
    def items(self) -> str:
        """The word for its items: files, entries or objects."""
        return SOURCES[self.kind].items


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerView:
    """One trigger for a reader. `problem` says why it starts nothing although it is active.

    `history` has at most HISTORY times or events, the newest first; `has_more` says that there are earlier ones.
    `next_times` and `last_failure` are those of a schedule.
    """

    id: UUID
    state: str
    problem: str
    owner: str
    makers: tuple[str, ...]
    definition: Any
    next_times: tuple[datetime, ...]
    history: tuple[occurrences.OccurrenceRow, ...]
    has_more: bool
    last_failure: occurrences.OccurrenceRow | None
    acts: tuple[PastAct, ...]
    changeable: bool
    webhook: WebhookView | None
    source: SourceView | None

    @property
    def waiting(self) -> int:
        """The number of times in this part of the history that wait."""
        return sum(row.state == "waiting" for row in self.history)


@dataclass(frozen=True, slots=True, kw_only=True)
class StarterOfRun:
    """The trigger that started a run. `noun` says whether it is a schedule."""

    noun: str
    id: UUID
    name: str


def read_list(kind: TriggerKind, actor: Actor) -> tuple[list[TriggerRow], bool]:
    """List the triggers that the actor may read: their own, or all as an admin; say too if there are more.

    Raise Forbidden.
    """
    access = wiring.resolve_access()
    access.require(actor, "runs:read")
    owner = None if access.may_read_continuations(actor) else actor.person
    with pool.join_transaction() as connection:
        rows, cut = trigger_rows.list_newest(connection, kind, owner)
    # The next time of a paused one is that when it was paused.
    return [
        row if row.state == TriggerStatus.ACTIVE else replace(row, next_at=None) for row in rows
    ], cut


def read_one(kind: TriggerKind, id: UUID, actor: Actor, before: int | None = None) -> TriggerView:
    """Read a trigger, with its history before one of its times or events.

    Raise Forbidden, NoSuchSchedule or NoSuchTrigger, Tampered, KeyMissing.
    """
    wiring.resolve_access().require(actor, "runs:read")
    with pool.join_transaction() as connection:
        row = read_row(connection, kind, id, actor)
        may_change = wiring.resolve_access().may_fork(actor, row.owner)
        stored_acts = trigger_rows.list_newest_acts(connection, row, ACTS)
        trigger = parse_act(row, stored_acts[0].body)
        history = occurrences.list_newest(connection, row.id, HISTORY + 1, before)
        is_schedule = row.kind is TriggerKind.SCHEDULE
        return TriggerView(
            id=row.id,
            state=row.state,
            problem=row.problem,
            owner=trigger.owner,
            makers=trigger.makers,
            definition=trigger.definition,
            next_times=_list_next_times(trigger) if is_schedule else (),
            history=tuple(history[:HISTORY]),
            has_more=len(history) > HISTORY,
            last_failure=occurrences.find_last_failure(connection, row.id) if is_schedule else None,
            acts=tuple(
                PastAct(
                    act=act.act,
                    by=act.by,
                    at=act.at,
                    detail=json.loads(act.body).get("detail", {}),
                )
                for act in stored_acts
            ),
            # A schedule whose last time has passed can get another end.
            changeable=may_change and trigger.status is not TriggerStatus.ENDED,
            webhook=_find_webhook(connection, trigger),
            source=None if is_schedule else _find_source(connection, row.id, trigger.definition),
        )


def find_starter_of_run(run: UUID, actor: Actor) -> StarterOfRun | None:
    """Return the trigger that started a run, None if a person did or the actor may not read it."""
    with pool.join_transaction() as connection:
        trigger = occurrences.find_trigger_of_run(connection, run)
        row = None if trigger is None else trigger_rows.read(connection, trigger)
    if row is None or not may_read(row.owner, actor):
        return None
    return StarterOfRun(noun=row.kind.noun, id=row.id, name=row.name)


def find_input_schema(agent: str) -> dict[str, Any] | None:
    """Return the JSON Schema of an agent's input, None if there is no such agent."""
    expression = wiring.resolve_catalogue().build_schema_expression(agent)
    with pool.join_transaction() as connection:
        row = connection.execute(f"SELECT {expression.sql}", expression.parameters).fetchone()
    assert row is not None  # a SELECT without FROM has one row
    schema: dict[str, Any] | None = None if row[0] is None else json.loads(row[0])
    return schema


def describe_problem(exc: Tampered | KeyMissing) -> str:
    """Say to a reader why a trigger cannot be shown."""
    return f"{exc}. It starts nothing."


def _list_next_times(schedule: SignedTrigger[ScheduleDefinition]) -> tuple[datetime, ...]:
    next_at = schedule.row.next_at
    if next_at is None or schedule.status is not TriggerStatus.ACTIVE:
        return ()
    return next_at, *islice(schedule.definition.calendar.after(next_at), NEXT - 1)


def _find_webhook(connection: Connection, trigger: SignedTrigger[Any]) -> WebhookView | None:
    if trigger.webhook is None:
        return None
    row = trigger_sources.read_webhook(connection, trigger.id)
    return WebhookView(
        scheme=trigger.webhook.scheme,
        header=trigger.webhook.header,
        refused=0 if row is None else row.refused,
        refused_at=None if row is None else row.refused_at,
        refused_why="" if row is None else row.refused_why,
    )


def _find_source(
    connection: Connection, id: UUID, definition: EventDefinition
) -> SourceView | None:
    row, source = trigger_sources.read_source(connection, id), SOURCES.get(definition.source)
    if row is None or source is None:
        return None
    late = timedelta(seconds=LATE_SECONDS[source.loop])
    now = pool.read_clock(connection)
    return SourceView(
        kind=source.kind,
        place=definition.location,
        looked_at=row.looked_at,
        problem=row.problem,
        late=row.looked_at is not None and now - row.looked_at > late,
    )

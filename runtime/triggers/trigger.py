"""A trigger as its newest act says: its definition, who owns it, who made it, and whether it is paused or ended."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar
from uuid import UUID

from runtime.core.run.continuation import merge_people
from runtime.errors import Tampered
from runtime.ports.access import Actor
from runtime.store.pool import Connection
from runtime.store.tables import received_events, trigger_rows
from runtime.store.tables.received_events import VerifiedEvent
from runtime.triggers import event_definition, schedule_definition
from runtime.triggers.event_definition import EventDefinition

EARLIER_ACTS = 100  # that are read for an event of an earlier definition

Definition = TypeVar("Definition", bound=schedule_definition.ScheduleDefinition | EventDefinition)

_FROM_TEXT = {
    trigger_rows.TriggerKind.SCHEDULE: schedule_definition.decode_schedule_definition,
    trigger_rows.TriggerKind.EVENT: event_definition.decode_event_definition,
}


class TriggerStatus(StrEnum):
    """Whether a trigger starts runs."""

    ACTIVE = "active"  # its times or events start runs
    PAUSED = "paused"  # a person paused it: it starts nothing until a person resumes it
    ENDED = "ended"  # a person ended it, or its last time has passed


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedWebhook:
    """The webhook of a trigger: the hash of its address, how deliveries are signed, and the sealed secret."""

    address: str
    scheme: str
    header: str
    secret: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedTrigger(Generic[Definition]):
    """A trigger. `owner` is the requester of its runs.

    `makers` are the people who made, changed, resumed or back-filled it, or retried one of its events: none of them
    decides in its runs.
    """

    row: trigger_rows.TriggerRow
    makers: tuple[str, ...]
    status: TriggerStatus
    definition: Definition
    webhook: SealedWebhook | None = None

    @property
    def id(self) -> UUID:
        """Its id."""
        return self.row.id

    @property
    def owner(self) -> str:
        """The owner, who is the signed one."""
        return self.row.owner


def read_signed(connection: Connection, row: trigger_rows.TriggerRow) -> SignedTrigger[Any]:
    """Read what the newest act says. Raises Tampered, KeyMissing."""
    return parse_act(row, trigger_rows.list_newest_acts(connection, row, 1)[0].body)


def parse_act(row: trigger_rows.TriggerRow, body: str) -> SignedTrigger[Any]:
    """Return the trigger after an act. Raise Tampered if the row, which is not signed, says something else.

    The owner in the row says who may read and change the trigger, and its event which events it is offered.
    """
    document = json.loads(body)
    kind = trigger_rows.TriggerKind(document["kind"])
    definition = _FROM_TEXT[kind](document["definition"])
    signed = (kind, document["owner"], getattr(definition, "event", ""))
    if signed != (row.kind, row.owner, row.event):
        raise Tampered(f"the owner or the event of the {row.kind.noun} is not the signed one")
    return SignedTrigger(
        row=row,
        makers=tuple(document["makers"]),
        status=TriggerStatus(document["status"]),
        definition=definition,
        webhook=SealedWebhook(**document["webhook"]) if "webhook" in document else None,
    )


def record_act(
    connection: Connection,
    after: SignedTrigger[Any],
    act: str,
    actor: Actor,
    detail: Mapping[str, str | int] | None = None,
) -> None:
    """Sign and add an act, with the trigger after it."""
    body = {
        "kind": after.row.kind,
        "owner": after.owner,
        "makers": merge_people(after.makers),
        "status": after.status,
        "definition": after.definition.to_text(),
        **({"webhook": asdict(after.webhook)} if after.webhook else {}),
        **({"detail": dict(detail)} if detail else {}),
    }
    trigger_rows.add_act(
        connection,
        after.id,
        act=act,
        by=actor.person,
        token=actor.token,
        body=json.dumps(body, ensure_ascii=False, sort_keys=True),
    )


def read_event(
    connection: Connection, trigger: SignedTrigger[EventDefinition], number: int
) -> VerifiedEvent:
    """Read an event of a trigger. Raise KeyMissing, or Tampered, also if the trigger never got such an event.

    The row that gives an event to a trigger is not signed. A program could add one for an event of another trigger.
    """
    event = received_events.read(connection, number)
    if _is_for(trigger.id, trigger.definition, event):
        return event
    for act in trigger_rows.list_newest_acts(connection, trigger.row, EARLIER_ACTS):
        earlier = event_definition.decode_event_definition(json.loads(act.body)["definition"])
        if _is_for(trigger.id, earlier, event):
            return event
    raise Tampered("the event is not one of this trigger")


def _is_for(trigger: UUID, definition: EventDefinition, event: VerifiedEvent) -> bool:
    own_sources = (f"webhook:{trigger}", f"{definition.source}:{definition.location}")
    return event.name == definition.event and (event.by is not None or event.source in own_sources)

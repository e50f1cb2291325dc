"""A trigger as its newest act says: its definition, who owns it, who made it, and whether it is paused or ended."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from uuid import UUID

from runtime.core.machine.origin import merged
from runtime.errors import Tampered
from runtime.ports.access import Actor
from runtime.store.pool import Connection
from runtime.store.tables.triggers import received_events, triggers
from runtime.store.tables.triggers.received_events import Received
from runtime.store.tables.triggers.triggers import TriggerRow
from runtime.triggers.events import definition
from runtime.triggers.events.definition import SOURCES, Definition
from runtime.triggers.schedule import Status

EARLIER = 100  # acts that are read for an event of an earlier definition


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """The webhook of a trigger: the hash of its address, how deliveries are signed, and the sealed secret."""

    address: str
    scheme: str
    header: str
    secret: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentTrigger:
    """A trigger. `owner` is the requester of its runs.

    `makers` are the people who made or changed it, or retried one of its events: none of them decides in its runs.
    """

    owner: str
    makers: tuple[str, ...]
    status: Status
    definition: Definition
    webhook: Webhook | None = None


def current(connection: Connection, row: TriggerRow) -> CurrentTrigger:
    """Read what the newest act says. Raises Tampered, KeyMissing."""
    return of_act(row, triggers.acts(connection, row.id, 1)[0].body)


def of_act(row: TriggerRow, body: str) -> CurrentTrigger:
    """Return the trigger after an act. Raise Tampered if the row, which is not signed, says something else.

    The owner in the row says who may read and change the trigger, and its event which events it is offered.
    """
    found = json.loads(body)
    defined = definition.from_text(found["definition"])
    if (found["owner"], defined.event) != (row.owner, row.event):
        raise Tampered("the owner or the event of the trigger is not the signed one")
    return CurrentTrigger(
        owner=found["owner"],
        makers=tuple(found["makers"]),
        status=Status(found["status"]),
        definition=defined,
        webhook=Webhook(**found["webhook"]) if "webhook" in found else None,
    )


def event(connection: Connection, id: UUID, one: CurrentTrigger, number: int) -> Received:
    """Read an event of a trigger. Raise KeyMissing, or Tampered, also if the trigger never got such an event.

    The row that gives an event to a trigger is not signed. A program could add one for an event of another trigger.
    """
    found = received_events.read(connection, number)
    if _gets(id, one.definition, found):
        return found
    for act in triggers.acts(connection, id, EARLIER):
        if _gets(id, definition.from_text(json.loads(act.body)["definition"]), found):
            return found
    raise Tampered("the event is not one of this trigger")


def _gets(id: UUID, said: Definition, found: Received) -> bool:
    own = (f"webhook:{id}", *(f"{kind}:{getattr(said, kind)}" for kind in SOURCES))
    return found.name == said.event and (found.by is not None or found.source in own)


def record(
    connection: Connection,
    trigger: UUID,
    act: str,
    after: CurrentTrigger,
    actor: Actor,
    detail: Mapping[str, str] | None = None,
) -> None:
    """Sign and add an act, with the trigger after it."""
    body = {
        "owner": after.owner,
        "makers": merged(after.makers),
        "status": after.status,
        "definition": definition.to_text(after.definition),
        **({"webhook": asdict(after.webhook)} if after.webhook else {}),
        **({"detail": dict(detail)} if detail else {}),
    }
    triggers.add_act(
        connection,
        trigger,
        act=act,
        by=actor.person,
        token=actor.token,
        body=json.dumps(body, ensure_ascii=False, sort_keys=True),
    )

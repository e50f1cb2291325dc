"""What people do with triggers. Each act is signed and kept.

The owner of a trigger and admins may change it, with the right to start runs. Others do not see it.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from uuid import UUID, uuid4

from runtime.control import external_events
from runtime.control.transaction import atomic
from runtime.errors import (
    InvalidInput,
    NoSuchTrigger,
    NotRetried,
    TriggerEnded,
)
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.store import pool
from runtime.store.pool import Connection
from runtime.store.tables.triggers import sources, trigger_events, triggers
from runtime.store.tables.triggers.trigger_events import State
from runtime.store.tables.triggers.triggers import TriggerRow
from runtime.triggers import rights
from runtime.triggers.events import definition, mapping, places, trigger
from runtime.triggers.events.definition import Definition, Wakes
from runtime.triggers.events.trigger import CurrentTrigger, Webhook
from runtime.triggers.schedule import Status

SCOPE = "runs:start"
ENDED = "the trigger was ended"
RETRIED = ("skipped", "failed")  # states of events that a person may retry


@dataclass(frozen=True, slots=True, kw_only=True)
class Locked:
    """A trigger that is locked until the transaction ends."""

    connection: Connection
    row: TriggerRow
    one: CurrentTrigger


def create(*, sent: Mapping[str, object], actor: Actor, form: UUID | None = None) -> UUID:
    """Make a trigger that the actor owns, or return the one that the same `form` made.

    Raise Forbidden, UnknownAgent, or InvalidInput naming the field.
    """
    wiring.access().require(actor, SCOPE)
    with atomic() as connection:
        defined = checked(sent)
        _require_waking(defined, actor)
        one = CurrentTrigger(
            owner=actor.person, makers=(actor.person,), status=Status.ACTIVE, definition=defined
        )
        made = form or uuid4()
        said = {"name": defined.name, "agent": defined.agent, "event": defined.event}
        if not triggers.insert(connection, made, owner=actor.person, **said):
            readable(connection, made, actor)  # another person's form is not theirs
            return made
        trigger.record(connection, made, "made", one, actor)
        _read_source(connection, made, defined)
    return made


def change(*, id: UUID, sent: Mapping[str, object], actor: Actor) -> None:
    """Replace the definition. Events that wait use the new mapping and limits, not the new filter and key.

    Raise NoSuchTrigger, Forbidden, TriggerEnded, UnknownAgent, or InvalidInput naming the field.
    """
    with locked(id, actor) as held:
        defined = checked(sent)
        _require_waking(defined, actor)
        record(held, "changed", actor, defined=defined)
        said = {"name": defined.name, "agent": defined.agent, "event": defined.event}
        triggers.write(held.connection, id, **said, not_before=None)
        _read_source(held.connection, id, defined)


def pause(*, id: UUID, actor: Actor) -> None:
    """Pause a trigger: it gets no events, and those that wait start nothing until it is resumed. Raise as `change`."""
    with locked(id, actor) as held:
        record(held, "paused", actor, status=Status.PAUSED)


def resume(*, id: UUID, actor: Actor) -> None:
    """Start runs again, from the next event on, and of those that wait. Raise as `change`."""
    with locked(id, actor) as held:
        record(held, "resumed", actor, status=Status.ACTIVE)


def end(*, id: UUID, actor: Actor) -> None:
    """End a trigger for good; events that wait are skipped. Its runs continue. Raise as `change`."""
    with locked(id, actor) as held:
        trigger_events.skip_waiting(held.connection, id, ENDED)
        sources.delete(held.connection, id)
        record(held, "ended", actor, status=Status.ENDED)


def retry(*, id: UUID, number: int, actor: Actor) -> None:
    """Handle an event again that started no run, by the current definition. Raise as `change`, or NotRetried."""
    with locked(id, actor) as held:
        row = trigger_events.read(held.connection, id, number)
        if row is None or row.run is not None or row.state not in RETRIED:
            raise NotRetried
        trigger_events.write(held.connection, id, number, state=State.NEW, reason="")
        record(held, "retried", actor, detail={"event": row.id or ""})


def readable(connection: Connection, id: UUID, actor: Actor) -> TriggerRow:
    """Return a trigger that the actor may read: their own, or any as an admin. Raise NoSuchTrigger."""
    row = triggers.read(connection, id)
    if row is None or not rights.may_read(row.owner, actor):
        raise NoSuchTrigger
    return row


def checked(sent: Mapping[str, object]) -> Definition:
    """Return the definition, with a mapping that fits the agent's input as far as it does not depend on the event.

    Raise UnknownAgent, or InvalidInput naming the field.
    """
    defined = definition.read(sent)
    places.require_allowed(defined)
    if defined.wakes == Wakes.ONLY:
        return defined
    try:
        wiring.catalogue().check_input(defined.agent, defined.mapping)
    except InvalidInput as exc:
        found = [_in_mapping(one) for one in (exc, *exc.others)]
        wrong = [one for one in found if not mapping.is_open(defined.mapping, one.field)]
        if wrong:
            raise InvalidInput(wrong[0].field, wrong[0].detail, wrong[1:]) from exc
    return defined


def _require_waking(defined: Definition, actor: Actor) -> None:
    """Raise Forbidden if the trigger wakes runs and the actor may not send events."""
    if defined.wakes:
        wiring.access().require(actor, external_events.SCOPE)


def _read_source(connection: Connection, id: UUID, defined: Definition) -> None:
    """Have the sweeper read what the definition says, from now on."""
    for kind in sources.Kind:
        if place := getattr(defined, kind):
            sources.write(connection, id, kind, place)
            return
    sources.delete(connection, id)


def _in_mapping(exc: InvalidInput) -> InvalidInput:
    return InvalidInput(mapping.MAPPING + exc.field.removeprefix("input"), exc.detail)


@contextmanager
def locked(id: UUID, actor: Actor) -> Iterator[Locked]:
    """Lock a trigger that the actor may change: a person who may start runs and read the trigger."""
    wiring.access().require(actor, SCOPE)
    with atomic() as connection:
        row = triggers.lock(connection, id)
        if row is None or not rights.may_read(row.owner, actor):
            raise NoSuchTrigger
        one = trigger.current(connection, row)
        if one.status is Status.ENDED:
            raise TriggerEnded
        yield Locked(connection=connection, row=row, one=one)


def record(
    held: Locked,
    act: str,
    actor: Actor,
    *,
    defined: Definition | None = None,
    status: Status | None = None,
    webhook: Webhook | None = None,
    detail: Mapping[str, str] | None = None,
) -> None:
    """Record an act that changes the trigger, and have the sweeper look at it. The actor becomes a maker.

    A locked trigger verifies, so it has no problem.
    """
    after = replace(
        held.one,
        makers=(*held.one.makers, actor.person),
        definition=defined or held.one.definition,
        status=status or held.one.status,
        webhook=webhook or held.one.webhook,
    )
    trigger.record(held.connection, held.row.id, act, after, actor, detail)
    due_at = pool.now(held.connection) if after.status is Status.ACTIVE else None
    triggers.write(held.connection, held.row.id, state=after.status, due_at=due_at, problem="")

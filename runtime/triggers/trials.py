"""Tries the definition of a trigger on events: nothing is started or kept."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any
from uuid import UUID

from runtime.errors import InvalidInput, Tampered, require_json_input
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.store import pool
from runtime.store.tables import occurrences, received_events
from runtime.store.tables.trigger_rows import TriggerKind
from runtime.triggers import mapping, times
from runtime.triggers.changes import SCOPE, read_row
from runtime.triggers.event_definition import EventDefinition, Wakes
from runtime.triggers.events import check_mapping
from runtime.triggers.listing import NEXT

RECORDED = 5  # events of a trigger in a trial


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTrial:
    """The result of trying a definition on one event.

    `data` is that of the event. `problem` names the wrong place and says why, empty without one. `input` and the keys
    are None without a result.
    """

    event: str
    data: Any
    passes: bool
    key: str | None
    business_key: str | None
    input: Any
    problem: str


def try_definition(
    sent: Mapping[str, object], actor: Actor, *, sample: Any = None, id: UUID | None = None
) -> list[EventTrial]:
    """Try a definition on a sample, and on the newest events of a trigger. It starts and keeps nothing.

    Raise Forbidden, NoSuchTrigger, UnknownAgent, or InvalidInput naming the field, `sample` if it is that.
    """
    wiring.resolve_access().require(actor, SCOPE)
    definition = check_mapping(sent)
    events = [] if sample is None else [_read_sample(sample, definition.event)]
    if id is not None:
        with pool.join_transaction() as connection:
            read_row(connection, TriggerKind.EVENT, id, actor)
            for row in occurrences.list_newest(connection, id, RECORDED):
                with suppress(Tampered):  # its row says so
                    events.append(received_events.read(connection, row.number).facts)
    return [_try(definition, facts) for facts in events]


def try_times(sent: Mapping[str, object], actor: Actor) -> tuple[datetime, ...]:
    """Return the next NEXT times of the definition of a schedule. It starts and keeps nothing.

    Raise Forbidden, UnknownAgent, or InvalidInput naming the field.
    """
    wiring.resolve_access().require(actor, SCOPE)
    with pool.join_transaction() as connection:
        now = pool.read_clock(connection)
    calendar = times.check(sent, actor, now).calendar
    return tuple(islice(calendar.after(now), NEXT))


def _try(definition: EventDefinition, facts: Mapping[str, Any]) -> EventTrial:
    passes, key, business_key, mapped, problem = False, None, None, None, ""
    try:
        passes = mapping.is_filter_met(definition.filter, facts)
        if passes:
            key = definition.compute_key(facts)
            business_key = definition.compute_business_key(facts, "trial")
            definition.compute_thread(facts)
        if passes and definition.wakes != Wakes.ONLY:
            mapped = mapping.apply_mapping(definition.mapping, facts)
            wiring.resolve_catalogue().check_input(definition.agent, mapped)
    except InvalidInput as exc:
        problem = exc.all_of_it
    return EventTrial(
        event=facts["id"],
        data=facts["data"],
        passes=passes,
        key=key,
        business_key=business_key if definition.business_key else None,
        input=mapped,
        problem=problem,
    )


def _read_sample(sample: Any, name: str) -> dict[str, Any]:
    """Return the facts of a sample: a whole event, or the data of one. Raise InvalidInput."""
    require_json_input(sample, "sample")
    if not isinstance(sample, dict):
        raise InvalidInput("sample", "must be an object")
    is_event = isinstance(sample.get("data"), dict) and set(sample) <= set(mapping.FACTS)
    event = sample if is_event else {"data": sample}
    defaults = {"id": "sample", "source": "", "name": name, "subject": "", "time": ""}
    texts = {field: str(event.get(field, text)) for field, text in defaults.items()}
    return {**texts, "data": event["data"]}

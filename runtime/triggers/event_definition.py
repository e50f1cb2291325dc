"""The definition of a trigger: its text, as it is signed, and the checks of a definition that a person sends. Pure.

It says which events start their run now. Events of one key start in order. An event waits while too many runs of the
trigger or of its key go on, while too many started lately, and until its key was quiet for the debounce.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Any

from runtime.core.values.json_values import hash_value
from runtime.core.values.limits import MAX_EVENT_NAME
from runtime.errors import InvalidInput
from runtime.store.tables.occurrences import WaitingEvent
from runtime.triggers import fields, mapping

MAX_AT_ONCE = 1_000
MAX_DEBOUNCE = 3_600  # seconds
MAX_RATE_SECONDS = 86_400
MAX_LOCATION = 500  # characters of the path of a folder, or the address of a bucket
SHOWN_ID = 60  # characters of an event's id in the business key of its run
_LIMIT = fields.make_number_rule(1, MAX_AT_ONCE, default=None)
LOOK_AGAIN = timedelta(seconds=1)  # until the next look at events that wait for a run to end
MAX_DEBOUNCES = 10  # debounces that an event waits at most, if others of its key keep coming


class Wakes(StrEnum):
    """Whether an event is for a run that waits for it."""

    NONE = ""  # it starts a run
    FIRST = "first"  # it wakes the run with its business key, and starts one if none is there
    ONLY = "only"  # it wakes such a run, and starts none


def _read_expression(value: object, field: str) -> str:
    text = fields.read_text(value or "", field).strip()
    if text:
        mapping.check_expression(text, field)
    return text


def _read_wakes(value: object, field: str) -> Wakes:
    try:
        return Wakes(fields.read_text(value or "", field))
    except ValueError as exc:
        raise InvalidInput(field, f"must be {Wakes.FIRST}, {Wakes.ONLY} or empty") from exc


_EXPRESSION = fields.make_text_rule(_read_expression, default="")


@dataclass(frozen=True, slots=True, kw_only=True)
class EventDefinition:
    """One trigger: which events start which agent on which input, and how many at once.

    `filter`, `key`, `business_key` and `thread` are expressions in CEL, empty without one. The limits are None without
    one. `rate` runs start in `rate_seconds` at most. `debounce` is in seconds, 0 without one. What the `source` holds
    at the `location` are events of this trigger too; both are empty without one. With `wakes`, the business key, or
    the id of a run, says which run of the agent waits for an event.
    """

    name: str = field(metadata=fields.NAME)
    agent: str = field(metadata=fields.TEXT)
    event: str = field(
        metadata=fields.make_text_rule(
            partial(fields.read_name, maximum=MAX_EVENT_NAME), MAX_EVENT_NAME
        )
    )
    filter: str = field(metadata=_EXPRESSION)
    mapping: Any = field(metadata=fields.make_rule({}, mapping.check, default={}))
    key: str = field(metadata=_EXPRESSION)
    business_key: str = field(metadata=_EXPRESSION)
    at_once: int | None = field(metadata=_LIMIT)
    at_once_per_key: int | None = field(metadata=_LIMIT)
    debounce: int = field(metadata=fields.make_number_rule(0, MAX_DEBOUNCE, "seconds", default=0))
    rate: int | None = field(metadata=_LIMIT)
    rate_seconds: int = field(
        metadata=fields.make_number_rule(1, MAX_RATE_SECONDS, "seconds", default=60)
    )
    source: str = ""
    location: str = ""
    wakes: str = field(
        default=Wakes.NONE,
        metadata=fields.make_rule({"enum": [*Wakes]}, _read_wakes, default=Wakes.NONE),
    )
    thread: str = field(default="", metadata=_EXPRESSION)

    def compute_key(self, facts: Mapping[str, Any]) -> str:
        """Return the key of an event, empty without one. Raise InvalidInput naming the expression."""
        if self.wakes:
            return mapping.evaluate_key(self.business_key, facts, "business_key")
        return mapping.evaluate_key(self.key, facts, "key") if self.key else ""

    def compute_business_key(self, facts: Mapping[str, Any], key: str) -> str:
        """Return the business key of the run of an event; `key` tells events apart. Raise InvalidInput.

        Without an expression each event has a key of its own. People see it as the title of the run.
        """
        if self.business_key:
            return mapping.evaluate_key(self.business_key, facts, "business_key")
        return f"{self.name} {facts['id'][:SHOWN_ID]} ({hash_value(key)[-12:]})"

    def compute_thread(self, facts: Mapping[str, Any]) -> str | None:
        """Return the thread of the run of an event, None without one. Raise InvalidInput naming `thread`."""
        return mapping.evaluate_key(self.thread, facts, "thread") if self.thread else None

    def to_text(self) -> str:
        """Write the definition as JSON, for its MAC."""
        return json.dumps(asdict(self), ensure_ascii=False, sort_keys=True)


def decode_event_definition(text: str) -> EventDefinition:
    """Read a definition that `to_text` wrote."""
    return EventDefinition(**json.loads(text))


def read(sent: Mapping[str, object], source: str, location: str) -> EventDefinition:
    """Return the definition that a person sent, without checking the mapping against its agent.

    Raise InvalidInput naming the field.
    """
    values = fields.check_all(EventDefinition, sent)
    definition = EventDefinition(**values, source=source, location=location)
    if definition.wakes:
        # The business key alone must say which run an event is for, at once.
        if not definition.business_key:
            raise InvalidInput("business_key", "must say which run an event wakes")
        if definition.key:
            raise InvalidInput(
                "key", "must be empty: the business key says which run an event wakes"
            )
        if definition.debounce:
            raise InvalidInput("debounce", "must be 0 for a trigger that wakes runs")
    if definition.at_once_per_key is not None and not definition.key:
        raise InvalidInput("at_once_per_key", "needs a key")
    return definition


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPlan:
    """The events that start now, in order, and when to look again, None without an event that waits."""

    start: tuple[WaitingEvent, ...]
    next_at: datetime | None


def plan_starts(
    definition: EventDefinition,
    waiting: Sequence[WaitingEvent],
    running: Mapping[str, int],
    starts: Sequence[datetime],
    now: datetime,
) -> EventPlan:
    """Return the plan for events that wait, in order, active runs by key, and recent starts, the oldest first."""
    active, recent = dict(running), list(starts)
    starting, again = list[WaitingEvent](), list[datetime]()
    debounce = timedelta(seconds=definition.debounce)
    for event in waiting:
        # The last event of a key must have been the last one for the debounce.
        ready = min(event.at + debounce, event.first_at + MAX_DEBOUNCES * debounce)
        if definition.rate is not None and len(recent) >= definition.rate:
            period = timedelta(seconds=definition.rate_seconds)
            ready = max(ready, recent[-definition.rate] + period)
        running_of_key = active.get(event.key, 0)
        if ready > now:
            again.append(ready)
        elif (definition.at_once is not None and sum(active.values()) >= definition.at_once) or (
            definition.at_once_per_key is not None and running_of_key >= definition.at_once_per_key
        ):
            again.append(now + LOOK_AGAIN)
        else:
            starting.append(event)
            active[event.key] = running_of_key + 1
            recent.append(now)
    return EventPlan(start=tuple(starting), next_at=min(again, default=None))

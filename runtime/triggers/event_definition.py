"""The definition of a trigger: its text, as it is signed, and the checks of a definition that a person sends. Pure."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from runtime.core.digest import sha256_of
from runtime.core.limits import MAX_EVENT_NAME
from runtime.errors import InvalidInput
from runtime.triggers import fields, mapping

MAX_AT_ONCE = 1_000
MAX_DEBOUNCE = 3_600  # seconds
MAX_RATE_SECONDS = 86_400
MAX_LOCATION = 500  # characters of the path of a folder, or the address of a bucket
SHOWN_ID = 60  # characters of an event's id in the business key of its run


class Wakes(StrEnum):
    """Whether an event is for a run that waits for it."""

    NONE = ""  # it starts a run
    FIRST = "first"  # it wakes the run with its business key, and starts one if none is there
    ONLY = "only"  # it wakes such a run, and starts none


@dataclass(frozen=True, slots=True, kw_only=True)
class EventDefinition:
    """One trigger: which events start which agent on which input, and how many at once.

    `filter`, `key`, `business_key` and `thread` are expressions in CEL, empty without one. The limits are None without
    one. `rate` runs start in `rate_seconds` at most. `debounce` is in seconds, 0 without one. What the `source` holds
    at the `location` are events of this trigger too; both are empty without one. With `wakes`, the business key, or
    the id of a run, says which run of the agent waits for an event.
    """

    name: str
    agent: str
    event: str
    filter: str
    mapping: Any
    key: str
    business_key: str
    at_once: int | None
    at_once_per_key: int | None
    debounce: int
    rate: int | None
    rate_seconds: int
    source: str = ""
    location: str = ""
    wakes: str = Wakes.NONE
    thread: str = ""

    def key_of(self, facts: Mapping[str, Any]) -> str:
        """Return the key of an event, empty without one. Raise InvalidInput naming the expression."""
        if self.wakes:
            return mapping.text_of(self.business_key, facts, "business_key")
        return mapping.text_of(self.key, facts, "key") if self.key else ""

    def business_key_of(self, facts: Mapping[str, Any], key: str) -> str:
        """Return the business key of the run of an event; `key` tells events apart. Raise InvalidInput.

        Without an expression each event has a key of its own. People see it as the title of the run.
        """
        if self.business_key:
            return mapping.text_of(self.business_key, facts, "business_key")
        return f"{self.name} {facts['id'][:SHOWN_ID]} ({sha256_of(key)[-12:]})"

    def thread_of(self, facts: Mapping[str, Any]) -> str | None:
        """Return the thread of the run of an event, None without one. Raise InvalidInput naming `thread`."""
        return mapping.text_of(self.thread, facts, "thread") if self.thread else None

    def to_text(self) -> str:
        """Write the definition as JSON, for its MAC."""
        return json.dumps(asdict(self), ensure_ascii=False, sort_keys=True)


def from_text(text: str) -> EventDefinition:
    """Read a definition that `to_text` wrote."""
    return EventDefinition(**json.loads(text))


def read(sent: Mapping[str, object], source: str, location: str) -> EventDefinition:
    """Return the definition that a person sent, without checking the mapping against its agent.

    Raise InvalidInput naming the field.
    """
    event = fields.text(sent.get("event"), "event").strip()
    if not 1 <= len(event) <= MAX_EVENT_NAME:
        raise InvalidInput("event", f"must have 1 to {MAX_EVENT_NAME} characters")
    mapped = sent.get("mapping", {})
    mapping.check(mapped)
    rate = _limit(sent, "rate")
    definition = EventDefinition(
        name=fields.name(sent.get("name")),
        agent=fields.text(sent.get("agent"), "agent"),
        event=event,
        filter=_expression(sent, "filter"),
        mapping=mapped,
        key=_expression(sent, "key"),
        business_key=_expression(sent, "business_key"),
        at_once=_limit(sent, "at_once"),
        at_once_per_key=_limit(sent, "at_once_per_key"),
        debounce=_seconds(sent, "debounce", 0, MAX_DEBOUNCE, 0),
        rate=rate,
        rate_seconds=_seconds(sent, "rate_seconds", 1, MAX_RATE_SECONDS, 60),
        source=source,
        location=location,
        wakes=_wakes(sent),
        thread=_expression(sent, "thread"),
    )
    if definition.wakes:
        _require_correlation(definition)
    if definition.at_once_per_key is not None and not definition.key:
        raise InvalidInput("at_once_per_key", "needs a key")
    return definition


def _wakes(sent: Mapping[str, object]) -> Wakes:
    try:
        return Wakes(fields.text(sent.get("wakes") or "", "wakes"))
    except ValueError as exc:
        raise InvalidInput("wakes", f"must be {Wakes.FIRST}, {Wakes.ONLY} or empty") from exc


def _require_correlation(definition: EventDefinition) -> None:
    """Raise InvalidInput unless the business key alone says which run an event is for, at once."""
    if not definition.business_key:
        raise InvalidInput("business_key", "must say which run an event wakes")
    if definition.key:
        raise InvalidInput("key", "must be empty: the business key says which run an event wakes")
    if definition.debounce:
        raise InvalidInput("debounce", "must be 0 for a trigger that wakes runs")


def _expression(sent: Mapping[str, object], field: str) -> str:
    text = fields.text(sent.get(field) or "", field).strip()
    if text:
        mapping.check_expression(text, field)
    return text


def _limit(sent: Mapping[str, object], field: str) -> int | None:
    value = sent.get(field)
    return None if value is None else fields.whole_number(value, field, 1, MAX_AT_ONCE)


def _seconds(
    sent: Mapping[str, object], field: str, least: int, greatest: int, default: int
) -> int:
    value = sent.get(field)
    return (
        default if value is None else fields.whole_number(value, field, least, greatest, "seconds")
    )

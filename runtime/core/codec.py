"""The JSON text of entries and continuations, one schema number for both, and reading it back.

Text is ASCII: a character that a database column would refuse or change cannot occur in it.
"""

import json
from datetime import datetime
from functools import cache
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from runtime.core.continuation import Continuation
from runtime.core.digest import ENCLOSED_DEPTH, require_json
from runtime.core.errors import NewerSchema, Unreadable
from runtime.core.events import Event, TaggedEvent
from runtime.core.replay import Entry
from runtime.core.upgrades import upgraded

SCHEMA = 4
HISTORY = {
    1: "frames, calls and approval gates",
    2: "gates that hold a whole frame",
    3: "messages of people, and calls that wait for a time or an event",
    4: "failed runs that are tried again, and outcomes that arrive late",
}


def encode_entry(entry: Entry) -> str:
    """`{"schema", "at", "events": [{"type", …}]}`. Raises NotJson if an event carries what JSON cannot."""
    events = _checked(entry.events)
    return _dump({"schema": SCHEMA, "at": entry.at.isoformat(), "events": events})


def require_encodable(event: Event) -> None:
    """Raises NotJson if an entry cannot carry this event."""
    _checked((event,))


def decode_entry(text: str) -> Entry:
    """Raises Unreadable or NewerSchema."""
    document = _load(text)
    try:
        return Entry(
            at=datetime.fromisoformat(document["at"]),
            events=_events().validate_python(document["events"]),
        )
    except (KeyError, TypeError, ValueError) as exc:
        raise Unreadable(f"not an entry: {exc}") from exc


def encode_continuation(continuation: Continuation) -> str:
    """The whole document: schema, run, position, head, agents, frames, pending, usage."""
    return _dump(_continuations().dump_python(continuation, mode="json"))


def decode_continuation(text: str) -> Continuation:
    """A document of an older schema becomes one of this. Raises Unreadable or NewerSchema."""
    document = _load(text)
    try:
        return _continuations().validate_python({**upgraded(document), "schema": SCHEMA})
    except ValidationError as exc:
        raise Unreadable(f"not a continuation: {exc}") from exc


def _checked(events: tuple[Event, ...]) -> Any:
    found = _events().dump_python(events, mode="json")
    require_json(found, "events", depth=ENCLOSED_DEPTH)
    return found


def _dump(document: Any) -> str:
    return json.dumps(document, separators=(",", ":"), allow_nan=False)


def _load(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError as exc:
        raise Unreadable(f"not JSON: {exc}") from exc
    if not isinstance(document, dict) or not isinstance(document.get("schema"), int):
        raise Unreadable("no schema number")
    if document["schema"] > SCHEMA:
        raise NewerSchema(document["schema"])
    return document


@cache
def _events() -> TypeAdapter[tuple[Event, ...]]:
    # By default NaN and infinities become null, where `require_json` does not see them.
    return TypeAdapter(tuple[TaggedEvent, ...], config=ConfigDict(ser_json_inf_nan="constants"))


@cache
def _continuations() -> TypeAdapter[Continuation]:
    return TypeAdapter(Continuation)

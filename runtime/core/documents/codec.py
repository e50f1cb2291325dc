"""Writes entries as JSON text with the schema number of all documents, and reads them back.

The text is ASCII, so it has no character that a database column would refuse or change. Fields with their default
value are left out, so defaults belong to the schema: if one changes, an upcaster writes it into older documents.
"""

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from pydantic import ConfigDict, TypeAdapter
from pydantic_core import PydanticSerializationError

from runtime.core.documents.compression import plain_text
from runtime.core.documents.upcasters import SCHEMA, Document, upcast
from runtime.core.run.continuation import Continuation
from runtime.core.run.events import (
    EVENT_TYPES,
    Compacted,
    Event,
    MemorySummarised,
    ModelFailed,
    ModelReplied,
    RetryScheduled,
    TaggedEvent,
    ToolFailed,
    ToolReturned,
)
from runtime.core.run.reducer import Entry
from runtime.core.values.enums import EFFECT_CLASSES
from runtime.core.values.errors import NotJson, Unreadable
from runtime.core.values.json_values import ENCLOSED_DEPTH, require_json
from runtime.core.values.limits import plain

BEGINNING = f'{{"schema":{SCHEMA},'
_LONG_NUMBER = re.compile(r"[:,\[\-][0-9]{16}")


def prepare() -> None:
    """Build what reads and writes documents, before a process is ready: else its first runs would wait for it."""
    _entries()
    for kind in EVENT_TYPES:
        _events_of(kind)


def encode_entry(entry: Entry) -> str:
    """Write an entry. Raises NotJson if an event carries an invalid value.

    `{"schema", "at", "events": [{"type", …}]}`
    """
    events = ",".join(_encoded(entry.events))
    return f'{BEGINNING}"at":"{entry.at.isoformat()}","events":[{events}]}}'


def require_encodable(event: Event) -> None:
    """Raise NotJson if an entry cannot carry this event."""
    _encoded((event,))


def decode_entry(text: str) -> Entry:
    """Read an entry from its text, compressed or not. Raises Unreadable or NewerSchema."""
    text = plain_text(text)
    try:
        if text.startswith(BEGINNING):
            stored = _entries().validate_json(text)
            return Entry(at=stored.at, events=stored.events)
        document = load_document(text)
        return Entry(
            at=datetime.fromisoformat(document["at"]),
            events=_events().validate_python(document["events"]),
        )
    except (KeyError, TypeError, ValueError) as exc:
        raise Unreadable(f"not an entry: {exc}") from exc


def documents_of(events: tuple[Event, ...]) -> list[dict[str, Any]]:
    """Return the events with every field, for readers."""
    return list(_events().dump_python(events, mode="json"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    """A stored entry of the present schema."""

    schema: int
    at: datetime
    events: tuple[TaggedEvent, ...]


def _encoded(events: tuple[Event, ...]) -> list[str]:
    """Return the JSON of each event. Values are checked one by one only if the JSON contains a suspicious escape."""
    try:
        texts = [_text(event) for event in events]
    except PydanticSerializationError as exc:
        with suppress(UnicodeEncodeError):  # it is in the name of a field
            _require(events)
        raise NotJson("events", "contains half of a surrogate pair") from exc
    if any(map(_is_suspect, texts)):
        _require(events)
    return texts


def _text(event: Event) -> str:
    kind: Any = type(event)
    encoded = _events_of(kind).dump_json((event,), exclude_defaults=True, ensure_ascii=True)
    fields = encoded.decode()[2:-2]  # within `[{` and `}]`
    return f'{{"type":"{event.type}",{fields}}}' if fields else f'{{"type":"{event.type}"}}'


def _is_suspect(text: str) -> bool:
    """Say whether compact JSON may have values that `require_json` refuses, perhaps only inside a text."""
    deep = text.count("{") + text.count("[") >= ENCLOSED_DEPTH
    escaped = "\\u0000" in text or "NaN" in text or "Infinity" in text
    return deep or escaped or bool(_LONG_NUMBER.search(text))


def _require(events: tuple[Event, ...]) -> None:
    require_json(documents_of(events), "events", depth=ENCLOSED_DEPTH)


def load_document(text: str) -> Document:
    """Read the JSON of a document in the present schema. Raises Unreadable or NewerSchema."""
    try:
        return upcast(json.loads(text))
    except ValueError as exc:
        raise Unreadable(f"not JSON: {exc}") from exc


# By default NaN and infinities become null, and `require_json` would not see them.
_CONFIG = ConfigDict(ser_json_inf_nan="constants")


@cache
def _events() -> TypeAdapter[tuple[Event, ...]]:
    return TypeAdapter(tuple[TaggedEvent, ...], config=_CONFIG)


@cache
def _entries() -> TypeAdapter[_Stored]:
    return TypeAdapter(_Stored)


@cache
def _events_of(kind: Any) -> TypeAdapter[Any]:
    alone: Any = tuple[kind]
    return TypeAdapter(alone, config=_CONFIG)


# An outcome that no entry can hold is replaced: the entry records whether the effect happened, without its result. A
# call with effects has happened, so it counts as returned, without a result. A `read` changed nothing and a
# `transactional` call is rolled back: both failed. A model call gave no reply.


def result_lost(problem: str) -> dict[str, Any]:
    """Return the substitute for a result that cannot be kept."""
    return {"happened": True, "result": None, "problem": plain(problem)}


def journaled(now: Continuation, event: Event) -> Event:
    """Return the event, or its substitute if it cannot be encoded. Raises NotJson if it has no substitute."""
    try:
        require_encodable(event)
    except NotJson as exc:
        return _instead(now, event, exc)
    return event


def _instead(now: Continuation, event: Event, problem: NotJson) -> Event:
    error = plain(f"its outcome cannot be kept: {problem}")
    match event:
        case ToolReturned():
            terms = now.call(event.frame, event.call).terms
            if terms is not None and EFFECT_CLASSES[terms.effect].happened_when_returned:
                return ToolReturned(
                    frame=event.frame,
                    call=event.call,
                    attempt=event.attempt,
                    result=result_lost(error),
                )
            return ToolFailed(
                frame=event.frame, call=event.call, attempt=event.attempt, error=error
            )
        case (
            ModelReplied()
            | ModelFailed()
            | Compacted()
            | MemorySummarised()
            | RetryScheduled(call=None)
        ):
            return ModelFailed(frame=event.frame, error=error)
        case _:
            raise problem

"""Writes entries and continuations as JSON text, with one schema number for both, and reads them back.

The text is ASCII, so it has no character that a database column would refuse or change. Fields with their default
value are left out, so defaults belong to the schema: if one changes, an upcaster writes it into older documents.
"""

import json
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from runtime.core.documents.compression import plain_text
from runtime.core.documents.conversations import Conversations, Told
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
from runtime.core.run.reducer import Entry, initial, step
from runtime.core.values.enums import EFFECT_CLASSES
from runtime.core.values.errors import IllegalTransition, NotJson, UnknownSubject, Unreadable
from runtime.core.values.json_values import ENCLOSED_DEPTH, require_json
from runtime.core.values.limits import plain

TextOf = Callable[[int], str]  # the entry text at a position; raises LookupError

_BEGINNING = f'{{"schema":{SCHEMA},'
_BRIEF = f'{_BEGINNING}"told":'
_LONG_NUMBER = re.compile(r"[:,\[\-][0-9]{16}")


def prepare() -> None:
    """Build what reads and writes documents, before a process is ready: else its first runs would wait for it."""
    _entries()
    _continuations()
    _told()
    for kind in EVENT_TYPES:
        _one(kind)


def encode_entry(entry: Entry) -> str:
    """Write an entry. Raises NotJson if an event carries an invalid value.

    `{"schema", "at", "events": [{"type", …}]}`
    """
    events = ",".join(_encoded(entry.events))
    return f'{_BEGINNING}"at":"{entry.at.isoformat()}","events":[{events}]}}'


def require_encodable(event: Event) -> None:
    """Raise NotJson if an entry cannot carry this event."""
    _encoded((event,))


def decode_entry(text: str) -> Entry:
    """Read an entry from its text, compressed or not. Raises Unreadable or NewerSchema."""
    text = plain_text(text)
    try:
        if text.startswith(_BEGINNING):
            stored = _entries().validate_json(text)
            return Entry(at=stored.at, events=stored.events)
        document = _load(text)
        return Entry(
            at=datetime.fromisoformat(document["at"]),
            events=_events().validate_python(document["events"]),
        )
    except (KeyError, TypeError, ValueError) as exc:
        raise Unreadable(f"not an entry: {exc}") from exc


def no_entries(position: int) -> str:
    """Raise LookupError: a continuation that leaves nothing out needs no entries."""
    raise LookupError(position)


def encode_continuation(now: Continuation, told: Told | None = None) -> str:
    """Write a continuation as JSON text. `told` counts the messages and calls that a brief state leaves out."""
    beginning = _BEGINNING if told is None else f"{_BRIEF}{json.dumps(told)},"
    found = _continuations().dump_json(now, exclude_defaults=True, ensure_ascii=True)
    return f"{beginning}{found.decode()[1:]}"


def decode_continuation(
    text: str,
    text_of: TextOf = no_entries,
    conversations: Conversations | None = None,
) -> Continuation:
    """Read a continuation. If it is brief, the omitted parts are read from the run's entries into `conversations`.

    `conversations` must be empty or have read the first entries. Raises Unreadable or NewerSchema.
    """
    try:
        if text.startswith(_BEGINNING) and not text.startswith(_BRIEF):
            return _continuations().validate_json(text)
        document = _load(text)
        state = _continuations().validate_python(document)
        if "told" not in document:
            return state
        told = _told().validate_python(document["told"])
    except ValidationError as exc:
        raise Unreadable(f"not a continuation: {exc}") from exc
    return _restored(state, told, text_of, conversations or Conversations())


def document_of(continuation: Continuation) -> dict[str, Any]:
    """Return the document with every field, for readers."""
    return {"schema": SCHEMA, **_continuations().dump_python(continuation, mode="json")}


def documents_of(events: tuple[Event, ...]) -> list[dict[str, Any]]:
    """Return the events with every field, for readers."""
    return list(_events().dump_python(events, mode="json"))


def _restored(
    state: Continuation, told: Told, text_of: TextOf, conversations: Conversations
) -> Continuation:
    """Return the whole state. If reading the entries is not enough, they are folded."""
    last = state.position
    if conversations.position > last:
        conversations.reset()
    try:
        for position in range(conversations.position + 1, last + 1):
            conversations.read(text_of(position))
        found = conversations.restored(state, told)
        if found is not None:
            return found
        now = initial(state.run)
        for position in range(1, last + 1):
            entry = decode_entry(text_of(position))
            now = step(now, entry.events, head=state.head, at=entry.at)
    except (LookupError, IllegalTransition, UnknownSubject) as exc:
        raise Unreadable(f"its entries lack its omitted parts ({exc})") from exc
    return now


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
    found = _one(kind).dump_json((event,), exclude_defaults=True, ensure_ascii=True)
    fields = found.decode()[2:-2]  # within `[{` and `}]`
    return f'{{"type":"{event.type}",{fields}}}' if fields else f'{{"type":"{event.type}"}}'


def _is_suspect(text: str) -> bool:
    """Say whether compact JSON may have values that `require_json` refuses, perhaps only inside a text."""
    deep = text.count("{") + text.count("[") >= ENCLOSED_DEPTH
    escaped = "\\u0000" in text or "NaN" in text or "Infinity" in text
    return deep or escaped or bool(_LONG_NUMBER.search(text))


def _require(events: tuple[Event, ...]) -> None:
    require_json(documents_of(events), "events", depth=ENCLOSED_DEPTH)


def _load(text: str) -> Document:
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
def _one(kind: Any) -> TypeAdapter[Any]:
    alone: Any = tuple[kind]
    return TypeAdapter(alone, config=_CONFIG)


@cache
def _continuations() -> TypeAdapter[Continuation]:
    return TypeAdapter(Continuation)


@cache
def _told() -> TypeAdapter[Told]:
    return TypeAdapter(Told)


# An outcome that no entry can hold is replaced: the entry records whether the effect happened, without its result. A
# call with effects has happened, so it counts as returned, without a result. A `read` changed nothing and a
# `transactional` call is rolled back: both failed. A model call gave no reply.


def result_lost(why: str) -> dict[str, Any]:
    """Return the substitute for a result that cannot be kept."""
    return {"happened": True, "result": None, "problem": plain(why)}


def journaled(now: Continuation, event: Event) -> Event:
    """Return the event, or its substitute if it cannot be encoded. Raises NotJson if it has no substitute."""
    try:
        require_encodable(event)
    except NotJson as exc:
        return _instead(now, event, exc)
    return event


def _instead(now: Continuation, event: Event, problem: NotJson) -> Event:
    why = plain(f"its outcome cannot be kept: {problem}")
    match event:
        case ToolReturned():
            terms = now.call(event.frame, event.call).terms
            if terms is not None and EFFECT_CLASSES[terms.effect].happened_when_returned:
                return ToolReturned(
                    frame=event.frame,
                    call=event.call,
                    attempt=event.attempt,
                    result=result_lost(why),
                )
            return ToolFailed(frame=event.frame, call=event.call, attempt=event.attempt, error=why)
        case (
            ModelReplied()
            | ModelFailed()
            | Compacted()
            | MemorySummarised()
            | RetryScheduled(call=None)
        ):
            return ModelFailed(frame=event.frame, error=why)
        case _:
            raise problem

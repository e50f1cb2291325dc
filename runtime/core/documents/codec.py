"""The JSON text of entries and continuations, one schema number for both, and reading it back.

Text is ASCII: a character that a database column would refuse or change cannot occur in it. Fields that have their
default are left out, so the defaults belong to the schema: an engineer who changes one raises SCHEMA and has
`upgrades` write
the old one into documents that left it out.
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

from runtime.core.continuation import Continuation
from runtime.core.digest import ENCLOSED_DEPTH, require_json
from runtime.core.documents.compression import plain_text
from runtime.core.documents.conversations import Conversations, Told
from runtime.core.documents.references import resolved
from runtime.core.documents.upgrades import upcast
from runtime.core.errors import (
    IllegalTransition,
    NewerSchema,
    NotJson,
    UnknownSubject,
    Unreadable,
)
from runtime.core.events import Event, TaggedEvent
from runtime.core.fast_replace import replace
from runtime.core.machine.replay import Entry, initial, step

SCHEMA = 5
HISTORY = {
    1: "frames, calls and approval gates",
    2: "gates that hold a whole frame",
    3: "messages of people, and calls that wait for a time or an event",
    4: "failed runs that are tried again, and outcomes that arrive late",
    5: "fields that have their default are left out, and a reply what its event says anyway",
    6: "a long run's continuation refers to its entries, which are of schema 5",
    7: "a long run's continuation leaves out what its entries tell, which are of schema 5",
    8: "a short entry is compressed; within is one of schema 5",
}
REFERRING = 6
BRIEF = 7
TextOf = Callable[[int], str]  # of the entry at a position; raises LookupError

_BEGINNING = f'{{"schema":{SCHEMA},'
_REFERS = f'{{"schema":{REFERRING},'
_BRIEF = f'{{"schema":{BRIEF},'
# What compact JSON has, perhaps within a text, of a value that `require_json` refuses.
_SUSPECT = ("\\u0000", "NaN", "Infinity")
_LONG_NUMBER = re.compile(r"[:,\[\-][0-9]{16}")


def encode_entry(entry: Entry) -> str:
    """`{"schema", "at", "events": [{"type", …}]}`. Raises NotJson if an event carries what JSON cannot."""
    events = ",".join(_encoded(entry.events))
    return f'{_BEGINNING}"at":"{entry.at.isoformat()}","events":[{events}]}}'


def require_encodable(event: Event) -> None:
    """Raises NotJson if an entry cannot carry this event."""
    _encoded((event,))


def decode_entry(text: str) -> Entry:
    """The entry of a text, compressed or not. Raises Unreadable or NewerSchema."""
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
    """Of a continuation that says everything itself."""
    raise LookupError(position)


def encode_continuation(now: Continuation, told: Told | None = None) -> str:
    """The document: schema, run, position, head, agents, frames, pending, usage; and what a brief state leaves out."""
    beginning = _BEGINNING if told is None else f'{_BRIEF}"told":{json.dumps(told)},'
    found = _continuations().dump_json(now, exclude_defaults=True, ensure_ascii=True)
    return beginning + found.decode()[1:]


def decode_continuation(
    text: str,
    text_of: TextOf = no_entries,
    conversations: Conversations | None = None,
) -> Continuation:
    """A document of an older schema becomes one of this, and what it leaves out is taken from its run's entries.

    They are read into `conversations`, which have read none or the first ones, if it leaves out all they tell. Raises
    Unreadable or NewerSchema.
    """
    try:
        if text.startswith(_BEGINNING):
            return _continuations().validate_json(text)
        if text.startswith(_BRIEF):
            return _restored(text, text_of, conversations or Conversations())
        if text.startswith(_REFERS):
            entry_of = cache(lambda position: decode_entry(text_of(position)))
            return replace(resolved(_continuations().validate_json(text), entry_of), schema=SCHEMA)
        return _continuations().validate_python({**upcast(_load(text)), "schema": SCHEMA})
    except ValidationError as exc:
        raise Unreadable(f"not a continuation: {exc}") from exc


def document_of(continuation: Continuation) -> dict[str, Any]:
    """The document with every field, for those who read it."""
    document: dict[str, Any] = _continuations().dump_python(continuation, mode="json")
    return document


def documents_of(events: tuple[Event, ...]) -> list[dict[str, Any]]:
    """Events with every field, for those who read them."""
    return list(_events().dump_python(events, mode="json"))


def _restored(text: str, text_of: TextOf, conversations: Conversations) -> Continuation:
    """The whole state. Its entries are folded if they do not tell what was left out."""
    document = json.loads(text)
    told = document.pop("told")
    state = _continuations().validate_python({**document, "schema": SCHEMA})
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
        raise Unreadable(f"its entries do not tell what it leaves out ({exc})") from exc
    return now


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    """An entry of the present schema as it is stored."""

    schema: int
    at: datetime
    events: tuple[TaggedEvent, ...]


def _encoded(events: tuple[Event, ...]) -> list[str]:
    """The JSON of each event. Only where it looks as if something was wrong is it gone through value by value."""
    try:
        texts = [_text(event) for event in events]
    except PydanticSerializationError as exc:
        with suppress(UnicodeEncodeError):  # it is in the name of a field
            _require(events)
        raise NotJson("events", "contains half of a surrogate pair") from exc
    if any(_is_suspect(text) for text in texts):
        _require(events)
    return texts


def _text(event: Event) -> str:
    kind: Any = type(event)
    found = _one(kind).dump_json((event,), exclude_defaults=True, ensure_ascii=True)
    fields = found.decode()[2:-2]  # within `[{` and `}]`
    return f'{{"type":"{event.type}",{fields}}}' if fields else f'{{"type":"{event.type}"}}'


def _is_suspect(text: str) -> bool:
    deep = text.count("{") + text.count("[") >= ENCLOSED_DEPTH
    return deep or any(one in text for one in _SUSPECT) or bool(_LONG_NUMBER.search(text))


def _require(events: tuple[Event, ...]) -> None:
    require_json(documents_of(events), "events", depth=ENCLOSED_DEPTH)


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


# By default NaN and infinities become null, where `require_json` does not see them.
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

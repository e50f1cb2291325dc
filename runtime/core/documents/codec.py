"""Writes entries as JSON text with the schema number of all documents, compressed, and reads them back.

The text is ASCII, so it has no character that a database column would refuse or change. Fields with their default
value are left out, so defaults belong to the schema: if one changes, an upcaster writes it into older documents.

Documents of older schemas are upgraded to the present one, and those of newer ones refused. One number, `schema`,
stands in each document: an entry, a continuation, or the manifest of an exported run. An engineer who changes what a
stored field means, or its default, raises SCHEMA and adds an upcaster here.

Short entries are compressed with a dictionary of frequent names, as text that a column can hold. Postgres compresses
values over two kilobytes, each by itself. An entry has a few hundred bytes, and most of them are the same in all
entries: names of events and fields. DEFLATE (RFC 1951) with these names as its preset dictionary writes an entry in
5 us and reads it in 2. The dictionary is part of schema 1: if one byte of it changes, compressed entries cannot be
read. An entry of another schema is not compressed, so Postgres can tell whether it can be read.
"""

import json
import re
import zlib
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from pydantic import ConfigDict, TypeAdapter
from pydantic_core import PydanticSerializationError

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
from runtime.core.values.errors import NewerSchema, NotJson, Unreadable
from runtime.core.values.json_values import ENCLOSED_DEPTH, require_json
from runtime.core.values.texts import clean_text

SCHEMA = 1
BEGINNING = f'{{"schema":{SCHEMA},'
_LONG_NUMBER = re.compile(r"[:,\[\-][0-9]{16}")

Document = dict[str, Any]
# By older schema: converts a document of it to the schema after it. It tells an entry by its `events`.
UPCASTERS: dict[int, Callable[[Document], Document]] = {}
MAX_CHARACTERS = 8_192  # Postgres compresses longer text itself

_SCHEMA_1 = '{"schema":1,'
_BEGINNING, _END = f'{_SCHEMA_1}"z":"', '"}'

_WINDOW = -13  # raw DEFLATE with an 8 KB window; the dictionary has 2 KB
_LEVEL, _MEMORY = 3, 5

# The most frequent names come last: their distance takes the fewest bits.
_DICTIONARY = (
    b'{"type":"Cancelling","by":"","reason":"{"type":"Failed","error":"{"type":"ModelFailed","frame":"0","error":"'
    b'{"type":"RetryScheduled","frame":"0","call":"c1.0","attempt":2,"due":"{"type":"Compacted","summary":"'
    b'{"type":"WaitStarted","frame":"0","call":"c1.0","event":"","match":{"until":"'
    b'{"type":"WaitEnded","frame":"0","call":"c1.0","outcome":"arrived","result":{'
    b'{"type":"OutcomeUnknown","frame":"0","call":"c1.0","attempt":1,"error":"{"type":"GateClosed","gate":"01'
    b'{"type":"ToolFailed","frame":"0","call":"c1.0","attempt":1,"error":"{"type":"CallRefused","frame":"0","call":"'
    b'"stored":{"digest":"sha256:","size":,"preview":""}}{"$secret":"{"type":"FrameClosed","frame":"0/c1.0","result":"'
    b'"business_key":"{"type":"RunStarted","agent":"","input":{"","requester":"","budget":{}}]}'
    b'{"type":"FrameOpened","frame":"0","agent":"","fingerprint":"sha256:","prompt":"sha256:","plan":null,"input":{'
    b'"parent":"0","call":"c1.0","instructions":"","at":"2026-","rates":{"input":0,"output":0}}]}'
    b'"verdict":"deny","effect":"read","effect":"write","kind":"version","kind":"in_doubt","cache_read_tokens":'
    b'{"type":"ModelReplied","frame":"0","reply":{"parts":[{"part_kind":"text"}]},"text":"","calls":[],"usage":{"'
    b'"model":"","cost":0},{"type":"Completed","output":"'
    b'"gate":"01","frame":"0","call":"c1.0","verdict":"approve","by":"","reason":""},{"type":"GateDecided","gate":"01'
    b'"model":"","cost":0},{"type":"GateOpened","gate":"01","kind":"approval","frame":"0","call":"c1.0","terms":{"'
    b'"deadline":30.0},"expires_at":"2026-'
    b'"tool-call","tool_call_id":"call_0"},{"part_kind":"tool-call","tool_call_id":"call_1"}]},"text":"","calls":['
    b'{"type":"ToolReturned","frame":"0","call":"c1.0","attempt":1,"result":{"'
    b'{"type":"ModelReplied","frame":"0","reply":{"parts":[{"part_kind":"tool-call","tool_call_id":"call_0"}]},'
    b'"text":"","calls":[{"tool":"","args":{""}}],"usage":{"input_tokens":1000,"output_tokens":100},"model":"","cost":0},'
    b'{"type":"CallAdmitted","frame":"0","call":"c1.0","terms":{"effect":"idempotent","digest":"sha256:'
    b'","deadline":30.0}},{"type":"ToolStarted","frame":"0","call":"c1.0","attempt":1,"at":"'
    b'{"schema":1,"at":"2026-01-01T00:00:00.000000+00:00","events":[{"type":"'
)
# Has read the dictionary; copied for each text.
_DEFLATE = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW, _MEMORY, zdict=_DICTIONARY)


def prepare() -> None:
    """Build what reads and writes documents, before a process is ready: else its first runs would wait for it."""
    _make_entry_adapter()
    for kind in EVENT_TYPES:
        _make_kind_adapter(kind)


def encode_entry(entry: Entry) -> str:
    """Write an entry. Raises NotJson if an event carries an invalid value.

    `{"schema", "at", "events": [{"type", …}]}`
    """
    events = ",".join(_encode_events(entry.events))
    return f'{BEGINNING}"at":"{entry.at.isoformat()}","events":[{events}]}}'


def require_encodable(event: Event) -> None:
    """Raise NotJson if an entry cannot carry this event."""
    _encode_events((event,))


def decode_entry(text: str) -> Entry:
    """Read an entry from its text, compressed or not. Raises Unreadable or NewerSchema."""
    text = decode_stored_text(text)
    try:
        if text.startswith(BEGINNING):
            stored = _make_entry_adapter().validator.validate_json(text)
            return Entry(at=stored.at, events=stored.events)
        document = load_document(text)
        return Entry(
            at=datetime.fromisoformat(document["at"]),
            events=_make_events_adapter().validator.validate_python(document["events"]),
        )
    except (KeyError, TypeError, ValueError) as exc:
        raise Unreadable(f"not an entry: {exc}") from exc


def build_event_documents(events: tuple[Event, ...]) -> list[dict[str, Any]]:
    """Return the events with every field, for readers."""
    return list(_make_events_adapter().dump_python(events, mode="json"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    """A stored entry of the present schema."""

    schema: int
    at: datetime
    events: tuple[TaggedEvent, ...]


def _encode_events(events: tuple[Event, ...]) -> list[str]:
    """Return the JSON of each event. Values are checked one by one only if the JSON may have some that are refused."""
    texts = []
    try:
        for event in events:
            kind: Any = type(event)
            encoded = _make_kind_adapter(kind).serializer.to_json(
                (event,), exclude_defaults=True, ensure_ascii=True
            )
            fields = encoded.decode()[2:-2]  # within `[{` and `}]`
            head = f'{{"type":"{event.type}"'
            texts.append(f"{head},{fields}}}" if fields else f"{head}}}")
    except PydanticSerializationError as exc:
        with suppress(UnicodeEncodeError):  # it is in the name of a field
            _require(events)
        raise NotJson("events", "contains half of a surrogate pair") from exc
    for text in texts:
        deep = text.count("{") + text.count("[") >= ENCLOSED_DEPTH
        escaped = "\\u0000" in text or "NaN" in text or "Infinity" in text
        if deep or escaped or _LONG_NUMBER.search(text):  # perhaps only inside a text
            _require(events)
            break
    return texts


def _require(events: tuple[Event, ...]) -> None:
    require_json(build_event_documents(events), "events", depth=ENCLOSED_DEPTH)


def load_document(text: str) -> Document:
    """Read the JSON of a document in the present schema. Raises Unreadable or NewerSchema."""
    try:
        return upcast(json.loads(text))
    except ValueError as exc:
        raise Unreadable(f"not JSON: {exc}") from exc


# By default NaN and infinities become null, and `require_json` would not see them.
_CONFIG = ConfigDict(ser_json_inf_nan="constants")


@cache
def _make_events_adapter() -> TypeAdapter[tuple[Event, ...]]:
    return TypeAdapter(tuple[TaggedEvent, ...], config=_CONFIG)


@cache
def _make_entry_adapter() -> TypeAdapter[_Stored]:
    return TypeAdapter(_Stored)


@cache
def _make_kind_adapter(kind: Any) -> TypeAdapter[Any]:
    alone: Any = tuple[kind]
    return TypeAdapter(alone, config=_CONFIG)


# An outcome that no entry can hold is replaced: the entry records whether the effect happened, without its result. A
# call with effects has happened, so it counts as returned, without a result. A `read` changed nothing and a
# `transactional` call is rolled back: both failed. A model call gave no reply.


def make_lost_result(problem: str) -> dict[str, Any]:
    """Return the substitute for a result that cannot be kept."""
    return {"happened": True, "result": None, "problem": clean_text(problem)}


def replace_unencodable(now: Continuation, event: Event) -> Event:
    """Return the event, or its substitute if it cannot be encoded. Raises NotJson if it has no substitute."""
    try:
        require_encodable(event)
        return event
    except NotJson as exc:
        problem = exc
    error = clean_text(f"its outcome cannot be kept: {problem}")
    match event:
        case ToolReturned():
            terms = now.call(event.frame, event.call).terms
            if terms is not None and EFFECT_CLASSES[terms.effect].happened_when_returned:
                return ToolReturned(
                    frame=event.frame,
                    call=event.call,
                    attempt=event.attempt,
                    result=make_lost_result(error),
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


def upcast(document: object) -> Document:
    """Return a document in the present schema. Raises Unreadable or NewerSchema."""
    if not isinstance(document, dict) or not isinstance(schema := document.get("schema"), int):
        raise Unreadable("no schema number")
    if schema > SCHEMA:
        raise NewerSchema(schema)
    for number in range(schema, SCHEMA):
        if number not in UPCASTERS:
            raise Unreadable(f"schema {number} is unknown")
        document = UPCASTERS[number](document)
    return document


def build_readable_pattern() -> str:
    """Return how each readable text begins, as a regular expression of Postgres and of Python."""
    return rf'^\{{"schema": ?({"|".join(map(str, (*UPCASTERS, SCHEMA)))}),'


def encode_stored_text(text: str) -> str:
    """Return the text of an entry as stored: compressed if that is shorter."""
    if len(text) > MAX_CHARACTERS or not text.startswith(_SCHEMA_1):
        return text
    short = f"{_BEGINNING}{compress(text)}{_END}"
    return short if len(short) < len(text) else text


def decode_stored_text(stored: str) -> str:
    """Return the text of a stored entry. Raises Unreadable."""
    if not stored.startswith(_BEGINNING):
        return stored
    try:
        text = decompress(stored[len(_BEGINNING) : -len(_END)])
    except ValueError as exc:
        raise Unreadable(f"not an entry: {exc}") from exc
    if not stored.endswith(_END):
        raise Unreadable("not an entry: the compressed text has no end")
    return text


def pack_text(stored: str) -> bytes | None:
    """Return the compressed bytes of a stored text. None for a text that `unpack_text` could not restore."""
    if not stored.startswith(_BEGINNING):
        return None
    try:
        compressed = a2b_base64(stored[len(_BEGINNING) : -len(_END)])
    except ValueError:
        return None
    return compressed if unpack_text(compressed) == stored else None


def unpack_text(compressed: bytes) -> str:
    """Return the stored text of which `pack_text` gives these bytes."""
    return f"{_BEGINNING}{b2a_base64(compressed, newline=False).decode()}{_END}"


def compress(text: str) -> str:
    """Compress a text with DEFLATE and encode it as base64."""
    deflate = _DEFLATE.copy()
    compressed = deflate.compress(text.encode()) + deflate.flush()
    return b2a_base64(compressed, newline=False).decode()


def decompress(text: str) -> str:
    """Undo `compress`. Raises ValueError for any other text, and for a result over MAX_CHARACTERS."""
    inflate = zlib.decompressobj(_WINDOW, zdict=_DICTIONARY)
    try:
        decompressed = inflate.decompress(a2b_base64(text, strict_mode=True), MAX_CHARACTERS)
    except zlib.error as exc:
        raise ValueError(str(exc)) from exc
    if not inflate.eof or inflate.unused_data:
        raise ValueError("it ends too early or too late, or is too long")
    return decompressed.decode()

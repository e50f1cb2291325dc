"""Stored documents of a run: each reads back equal, and documents of every schema keep their meaning."""

import json
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints
from uuid import UUID

import pytest

from runtime.core.continuation import Continuation
from runtime.core.documents.codec import (
    HISTORY,
    SCHEMA,
    decode_continuation,
    decode_entry,
    encode_continuation,
    encode_entry,
)
from runtime.core.errors import NewerSchema, NotJson, Unreadable
from runtime.core.events import EVENT_TYPES, ToolReturned
from runtime.core.machine.replay import Entry
from tests.core.machine.events import STARTED
from tests.core.machine.walks import AT

RUN = UUID(int=1)
DEEP = json.loads("[" * 81 + "]" * 81)


def returned(value: Any) -> Entry:
    event = ToolReturned(frame="0", call="c1.0", attempt=1, result=value)
    return Entry(at=AT, events=(STARTED[0], event))


@pytest.mark.parametrize(
    ("value", "where"),
    [
        (float("nan"), r"events\[1\].result"),
        ([1, -(2**53)], r"events\[1\].result"),
        ({"\x00": 1}, r"events\[1\].result"),
        ("\ud800", r"events\[1\].result"),
        (DEEP, r"events\[1\].result"),
        ({"k\udfff": 1}, "events: contains half of a surrogate pair"),
    ],
)
def test_values_that_would_be_read_differently_are_not_written(value: Any, where: str) -> None:
    with pytest.raises(NotJson, match=f"^{where}"):
        encode_entry(returned(value))


def test_unusual_but_valid_values_are_written() -> None:
    texts = ["NaN", {"Infinity": ["-Infinity"]}, "\\u0000", "\U0001f600 ä"]
    entry = returned([*texts, 2**53 - 1, -(2**53 - 1), 0.1234567890123456, [[[]]] * 100])
    assert decode_entry(encode_entry(entry)) == entry


@pytest.mark.parametrize("read", [decode_entry, decode_continuation])
@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema":1}', '{"schema":"1"}', "\x00"])
def test_a_document_that_is_not_ours_is_unreadable(
    read: Callable[[str], object], text: str
) -> None:
    with pytest.raises(Unreadable):
        read(text)
    with pytest.raises(NewerSchema):
        read(f'{{"schema":{max(HISTORY) + 1},"anything":1}}')


def test_omitted_defaults_are_those_of_their_schema() -> None:
    """A changed default changes stored documents: raise SCHEMA, and have upcasters.py write the old one."""
    written = json.loads(Path(__file__).with_name("defaults.json").read_text())
    assert written["schema"] == SCHEMA
    found = defaults()
    changed = {
        f"{kind}.{name}": (was, found[kind].get(name))
        for kind, names in written["defaults"].items()
        for name, was in names.items()
        if found[kind].get(name) != was
    }
    assert changed == {}
    assert found.keys() == written["defaults"].keys()


def defaults() -> dict[str, dict[str, str]]:
    """The default of every field of everything that a document may hold."""
    found: dict[str, dict[str, str]] = {}
    kinds: list[Any] = [Continuation, *EVENT_TYPES]
    while kinds:
        kind = kinds.pop()
        if is_dataclass(kind) and isinstance(kind, type) and kind.__name__ not in found:
            made = {field.name: _default(field) for field in fields(kind)}
            found[kind.__name__] = {name: one for name, one in made.items() if one is not None}
            kinds += get_type_hints(kind).values()
        kinds += get_args(kind)
    return found


def _default(field: Any) -> str | None:
    if field.default is not MISSING:
        return repr(field.default)
    return None if field.default_factory is MISSING else repr(field.default_factory())


def document(schema: int, **more: Any) -> str:
    """A continuation's text, as a release of that schema wrote it."""
    return json.dumps({"schema": schema, "run": str(RUN), **more})


@pytest.mark.parametrize(
    ("schema", "frame", "failures"),
    [
        (1, {"state": "asking", "attempt": 3}, 2),
        (1, {"state": "retrying", "attempt": 3}, 3),
        (1, {"attempt": 2}, 1),
        (1, {}, 0),
        (2, {"state": "asking", "attempt": 3}, 0),
        (SCHEMA, {"state": "asking", "attempt": 3, "failures": 1}, 1),
    ],
)
def test_old_frames_count_all_but_the_last_attempt_as_failed(
    schema: int, frame: dict[str, Any], failures: int
) -> None:
    known = {"id": "0", "agent": "a", "fingerprint": "f", "prompt": "p"}
    now = decode_continuation(document(schema, frames={"0": {**known, **frame}}))
    assert now.frame("0").failures == failures
    assert decode_continuation(encode_continuation(now)) == now


@pytest.mark.parametrize("schema", [1, 2, SCHEMA])
def test_frames_that_are_none_are_unreadable_in_every_schema(schema: int) -> None:
    assert decode_continuation(document(schema)) == Continuation(run=RUN)
    none: list[Any] = [None, 7, [], {"0": None}, {"0": []}, {"0": {"attempt": None}}, {"0": {}}]
    for frames in none:
        with pytest.raises(Unreadable):
            decode_continuation(document(schema, frames=frames))


def test_omitted_fields_of_this_schema_are_not_guessed() -> None:
    assert decode_continuation(document(4, requester="ada")).origin == ("ada",)
    assert decode_continuation(document(SCHEMA, requester="ada")).origin == ()


def test_a_stored_text_is_compact_and_of_the_present_schema() -> None:
    text = encode_continuation(Continuation(run=RUN))
    assert text == '{"schema":5,"run":"00000000-0000-0000-0000-000000000001"}'
    entry = encode_entry(Entry(at=AT, events=(STARTED[0],)))
    assert entry.startswith('{"schema":5,"at":"2026-01-01T00:00:00+00:00","events":[{')

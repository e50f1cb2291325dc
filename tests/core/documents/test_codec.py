"""Stored documents of a run: each reads back equal, and nothing else is read."""

import base64
import hashlib
import json
import string
import zlib
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, get_args, get_type_hints
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.core.documents import codec, continuations, signed_gzip
from runtime.core.documents.codec import SCHEMA, decode_stored_text, encode_stored_text
from runtime.core.documents.continuations import Conversations
from runtime.core.run.continuation import Continuation
from runtime.core.run.events import EVENT_TYPES, ToolReturned
from runtime.core.run.reducer import Entry
from runtime.core.values.errors import NewerSchema, NotJson, Unreadable
from tests.core.run.events import AT, STARTED

RUN = UUID(int=1)
DEEP = json.loads("[" * 81 + "]" * 81)
VALUE = {"text": "x" * 100}
RETURNED = ToolReturned(frame="0", call="c1.0", attempt=1, result=VALUE)
# Compressed entries cannot be read with another dictionary. A better one needs a new schema.
LETTERS = string.ascii_letters + string.digits + "!#$%&()*+,-.:;<=>?@[]^_{|}~"
DICTIONARY = "31d72d7080574e629693bd8a4bc87022a9b3b508d7ae9c54e572dcd81835251e"


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
        codec.encode_entry(returned(value))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2**53, {"\x00": 1}, DEEP])
def test_nor_are_they_as_the_only_event_of_an_entry(value: Any) -> None:
    with pytest.raises(NotJson, match=r"^events"):
        codec.encode_entry(Entry(at=AT, events=returned(value).events[1:]))


def test_unusual_but_valid_values_are_written() -> None:
    texts = ["NaN", {"Infinity": ["-Infinity"]}, "\\u0000", "\U0001f600 ä"]
    entry = returned([*texts, 2**53 - 1, -(2**53 - 1), 0.1234567890123456, [[[]]] * 100])
    assert codec.decode_entry(codec.encode_entry(entry)) == entry


@pytest.mark.parametrize("read", [codec.decode_entry, continuations.decode_continuation])
@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema":1}', '{"schema":"1"}', "\x00"])
def test_a_foreign_document_is_unreadable(read: Callable[[str], object], text: str) -> None:
    with pytest.raises(Unreadable):
        read(text)
    with pytest.raises(NewerSchema):
        read(f'{{"schema":{SCHEMA + 1},"anything":1}}')


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


def test_frames_that_are_none_are_unreadable() -> None:
    def document(**more: Any) -> str:
        return json.dumps({"schema": 1, "run": str(RUN), **more})

    assert continuations.decode_continuation(document()) == Continuation(run=RUN)
    none: list[Any] = [None, 7, [], {"0": None}, {"0": []}, {"0": {"attempt": None}}, {"0": {}}]
    for frames in none:
        with pytest.raises(Unreadable):
            continuations.decode_continuation(document(frames=frames))


@cache
def forms() -> tuple[str, str]:
    text = codec.encode_entry(returned("x"))
    return text, encode_stored_text(text)


def test_the_dictionary_is_that_of_its_schema() -> None:
    text, stored = forms()
    assert hashlib.sha256(codec._DICTIONARY).hexdigest() == DICTIONARY
    assert stored.startswith('{"schema":1,"z":"')
    assert 2 * len(stored) < len(text)


@given(st.text(max_size=300) | st.dictionaries(st.text(max_size=9), st.integers(0, 9)))
def test_an_entry_comes_back_as_it_was_stored(result: Any) -> None:
    try:
        text = codec.encode_entry(returned(result))
    except NotJson:
        return
    stored = encode_stored_text(text)
    assert stored.isascii()
    assert len(stored) <= len(text)
    assert decode_stored_text(stored) == text
    assert codec.decode_entry(stored) == returned(result)


@pytest.mark.parametrize(
    "result",
    ["".join(Random(1).choices(LETTERS, k=3_000)), "x" * codec.MAX_CHARACTERS],
    ids=["does not get shorter", "long: Postgres compresses it"],
)
def test_an_entry_is_stored_as_it_is_if_it(result: str) -> None:
    text = codec.encode_entry(returned(result))
    assert encode_stored_text(text) == text


@pytest.mark.parametrize(
    "inner",
    [
        lambda text: "no base64!",
        lambda text: base64.b64encode(b"no deflate").decode(),
        lambda text: codec.compress(text)[:-8] + "AAAAAAA=",
        lambda text: codec.compress(text.replace('{"schema":1', '{"schema":0')),
        lambda text: codec.compress(encode_stored_text(text)),
        lambda text: base64.b64encode(zlib.compress(text.encode())).decode(),
        lambda text: codec.compress(text + " " * codec.MAX_CHARACTERS),
    ],
    ids=["letters", "bytes", "end", "schema 0", "twice", "no dictionary", "too long"],
)
def test_forms_never_written_by_this_schema_are_not_read(inner: Callable[[str], str]) -> None:
    plain, stored = forms()
    wrong = (f"{stored} ", f" {stored}", f"{stored[:-2]}xx")
    for text in (f'{{"schema":1,"z":"{inner(plain)}"}}', *wrong):
        with pytest.raises((Unreadable, NewerSchema)):
            codec.decode_entry(text)


@pytest.mark.parametrize("inner", ["AB==", "AA", "A A=="], ids=["last bits", "end", "space"])
def test_only_text_that_comes_back_is_packed(inner: str) -> None:
    text, stored = forms()
    found = codec.pack_text(stored)
    assert found is not None
    assert codec.unpack_text(found) == stored
    assert codec.pack_text(f'{{"schema":1,"z":"{inner}"}}') is None
    assert codec.pack_text(text) is None


def test_a_conversation_is_read_from_compressed_entries() -> None:
    conversations = Conversations()
    conversations.read(encode_stored_text(codec.encode_entry(Entry(at=AT, events=(STARTED[0],)))))
    assert conversations.is_complete  # otherwise every entry would be folded


def test_the_head_of_a_signed_file_keeps_its_form() -> None:
    head = signed_gzip.Head(name="n", key_id="k", public_key="p", body="b")
    assert json.loads(head.build_statement()) == {
        "body": "b",
        "format": "signoff.signed",
        "key_id": "k",
        "name": "n",
        "public_key": "p",
        "signature": "",
    }

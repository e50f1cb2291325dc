"""Entries that are stored compressed: what comes out is what went in, and nothing else is taken for one."""

import base64
import hashlib
import string
import zlib
from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.core.documents import compression
from runtime.core.documents.codec import decode_entry, encode_entry
from runtime.core.documents.compression import plain_text, stored_text
from runtime.core.documents.conversations import Conversations
from runtime.core.errors import NewerSchema, NotJson, Unreadable
from runtime.core.events import ToolReturned
from runtime.core.machine.replay import Entry
from tests.core.machine.events import STARTED
from tests.core.machine.walks import AT

# Entries of schema 8 cannot be read with another dictionary. A better one needs a new schema.
LETTERS = string.ascii_letters + string.digits + "!#$%&()*+,-.:;<=>?@[]^_{|}~"
DICTIONARY_OF_SCHEMA_8 = "116b0b502e315dafbd979a425c24acaf1b42b4df53762da150662d6369c12bf4"


def entry(result: Any) -> Entry:
    event = ToolReturned(frame="0", call="c1.0", attempt=1, result=result)
    return Entry(at=AT, events=(STARTED[0], event))


@cache
def forms() -> tuple[str, str]:
    """The text of an entry, and how it is stored."""
    text = encode_entry(entry("x"))
    return text, stored_text(text)


def test_the_dictionary_is_that_of_its_schema() -> None:
    text, stored = forms()
    assert hashlib.sha256(compression._DICTIONARY).hexdigest() == DICTIONARY_OF_SCHEMA_8
    assert stored.startswith('{"schema":8,"z":"')
    assert 2 * len(stored) < len(text)


@given(st.text(max_size=300) | st.dictionaries(st.text(max_size=9), st.integers(0, 9)))
def test_an_entry_comes_back_as_it_was_stored(result: Any) -> None:
    try:
        text = encode_entry(entry(result))
    except NotJson:
        return
    stored = stored_text(text)
    assert stored.isascii()
    assert len(stored) <= len(text)
    assert plain_text(stored) == text
    assert decode_entry(stored) == entry(result)


@pytest.mark.parametrize(
    "result",
    ["".join(Random(1).choices(LETTERS, k=3_000)), "x" * compression.MAX_CHARACTERS],
    ids=["does not get shorter", "long: Postgres compresses it"],
)
def test_an_entry_is_stored_as_it_is_if_it(result: str) -> None:
    text = encode_entry(entry(result))
    assert stored_text(text) == text


@pytest.mark.parametrize(
    "inner",
    [
        lambda text: "no base64!",
        lambda text: base64.b64encode(b"no deflate").decode(),
        lambda text: compression.compress(text)[:-8] + "AAAAAAA=",
        lambda text: compression.compress(text.replace('{"schema":5', '{"schema":4')),
        lambda text: compression.compress(stored_text(text)),
        lambda text: base64.b64encode(zlib.compress(text.encode())).decode(),
        lambda text: compression.compress(text + " " * compression.MAX_CHARACTERS),
    ],
    ids=["letters", "bytes", "end", "schema 4", "twice", "no dictionary", "too long"],
)
def test_forms_never_written_by_this_schema_are_not_read(inner: Callable[[str], str]) -> None:
    text = f'{{"schema":8,"z":"{inner(forms()[0])}"}}'
    with pytest.raises(Unreadable):
        decode_entry(text)


def test_a_compressed_entry_with_something_around_it_is_not_read() -> None:
    _, stored = forms()
    for text in (f"{stored} ", f" {stored}"):
        with pytest.raises((Unreadable, NewerSchema)):
            decode_entry(text)


@pytest.mark.parametrize("inner", ["AB==", "AA", "A A=="], ids=["last bits", "end", "space"])
def test_only_text_that_comes_back_is_packed(inner: str) -> None:
    text, stored = forms()
    found = compression.packed(stored)
    assert found is not None
    assert compression.unpacked(found) == stored
    assert compression.packed(f'{{"schema":8,"z":"{inner}"}}') is None
    assert compression.packed(text) is None


def test_a_conversation_is_read_from_compressed_entries() -> None:
    conversations = Conversations()
    conversations.read(stored_text(encode_entry(Entry(at=AT, events=(STARTED[0],)))))
    assert conversations.whole  # otherwise every entry would be folded

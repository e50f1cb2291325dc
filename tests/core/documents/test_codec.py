"""Stored documents of a run: each reads back equal, and documents of every schema keep their meaning."""

import base64
import hashlib
import json
import string
import zlib
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, get_args, get_type_hints
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.core.continuation import Continuation
from runtime.core.documents import codec, compression
from runtime.core.documents.compression import plain_text, stored_text
from runtime.core.documents.conversations import (
    CONSEQUENCES,
    DIALOGUE,
    ORIGINS,
    PROMPTS,
    REPLIES,
    REVIEWS,
    Conversations,
)
from runtime.core.enums import Edit, Preview, Verdict
from runtime.core.errors import NewerSchema, NotJson, Unreadable
from runtime.core.events import (
    EVENT_TYPES,
    AgentChanged,
    AnswerDropped,
    BlobRef,
    CallAdmitted,
    Event,
    GateDecided,
    MemorySummarised,
    MessageReceived,
    PinnedPrompt,
    Proposal,
    Resumed,
    RetryScheduled,
    ToolReturned,
)
from runtime.core.machine.replay import Entry
from tests.core.machine.events import AT, STARTED, begun, opened, options, replied

RUN = UUID(int=1)
DEEP = json.loads("[" * 81 + "]" * 81)
VALUE = {"text": "x" * 100}
RETURNED = ToolReturned(frame="0", call="c1.0", attempt=1, result=VALUE)
# Entries of schema 8 cannot be read with another dictionary. A better one needs a new schema.
LETTERS = string.ascii_letters + string.digits + "!#$%&()*+,-.:;<=>?@[]^_{|}~"
DICTIONARY_OF_SCHEMA_8 = "116b0b502e315dafbd979a425c24acaf1b42b4df53762da150662d6369c12bf4"


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


DELAYED = RetryScheduled(frame="0", call=None, attempt=1, cause="brake", error="busy")
INSIDE = BlobRef(digest="sha256:d", size=70_000, preview="x")
MESSAGE = MessageReceived(by="ada", text="Stop.")
PINNED = PinnedPrompt(name="hr/onboarding", number=1, digest="sha256:d", at=AT)
EDIT = Edit(args={}, digest="sha256:e")
EDITED = GateDecided(
    gate=UUID(int=1),
    frame="0",
    call="c1.0",
    verdict=Verdict.EDIT,
    by="bea",
    reason="",
    edit=EDIT,
)
NEWER = AgentChanged(frame="0", before="f", fingerprint="g", prompt="p", changes=())


@pytest.mark.parametrize(
    ("event", "schema"),
    [
        (NEWER, codec.SCHEMA),
        (replace(NEWER, by="anne"), DIALOGUE),
        (replace(NEWER, pinned=PINNED), PROMPTS),
        (opened(pinned=PINNED), PROMPTS),
        (opened(item=True), PROMPTS),
        (STARTED[0], codec.SCHEMA),
        (begun(makers=("dora",)), ORIGINS),
        (AnswerDropped(frame="0", question=UUID(int=1), usage={}), ORIGINS),
        (RETURNED, codec.SCHEMA),
        (replace(RETURNED, answer=True), ORIGINS),
        (replace(RETURNED, stored=INSIDE), codec.SCHEMA),
        (replace(RETURNED, stored=replace(INSIDE, outside=True)), ORIGINS),
        (DELAYED, codec.SCHEMA),
        (replace(DELAYED, limited=True), ORIGINS),
        (replace(DELAYED, cause="message"), ORIGINS),
        (MemorySummarised(frame="0", at=AT, digest="sha256:s", usage={}), ORIGINS),
        (MESSAGE, codec.SCHEMA),
        (replace(MESSAGE, cuts=True), ORIGINS),
        (CallAdmitted(frame="0", call="c1.0", terms=options(plan=True)), ORIGINS),
        (CallAdmitted(frame="0", call="c1.0", terms=options(tells=True)), PROMPTS),
        (replied("t", "t"), codec.SCHEMA),
        (replied("t", "t", at_once=1), REPLIES),
        (Resumed(by="ada"), codec.SCHEMA),
        (Resumed(by="ada", reason="done"), CONSEQUENCES),
        (EDITED, REVIEWS),
        (replace(EDITED, edit=replace(EDIT, preview=Preview(material="m"))), CONSEQUENCES),
    ],
)
def test_releases_before_read_no_event_that_is_new(event: Event, schema: int) -> None:
    entry = Entry(at=AT, events=(event,))
    text = codec.encode_entry(entry)
    assert (json.loads(text)["schema"], codec.decode_entry(text)) == (schema, entry)


def test_unusual_but_valid_values_are_written() -> None:
    texts = ["NaN", {"Infinity": ["-Infinity"]}, "\\u0000", "\U0001f600 ä"]
    entry = returned([*texts, 2**53 - 1, -(2**53 - 1), 0.1234567890123456, [[[]]] * 100])
    assert codec.decode_entry(codec.encode_entry(entry)) == entry


@pytest.mark.parametrize("read", [codec.decode_entry, codec.decode_continuation])
@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema":1}', '{"schema":"1"}', "\x00"])
def test_a_foreign_document_is_unreadable(read: Callable[[str], object], text: str) -> None:
    with pytest.raises(Unreadable):
        read(text)
    with pytest.raises(NewerSchema):
        read(f'{{"schema":{max(codec.HISTORY) + 1},"anything":1}}')


def test_omitted_defaults_are_those_of_their_schema() -> None:
    """A changed default changes stored documents: raise SCHEMA, and have upcasters.py write the old one."""
    written = json.loads(Path(__file__).with_name("defaults.json").read_text())
    assert written["schema"] == codec.SCHEMA
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
    return json.dumps({"schema": schema, "run": str(RUN), **more})


@pytest.mark.parametrize(
    ("schema", "frame", "failures"),
    [
        (1, {"state": "asking", "attempt": 3}, 2),
        (1, {"state": "retrying", "attempt": 3}, 3),
        (1, {"attempt": 2}, 1),
        (1, {}, 0),
        (2, {"state": "asking", "attempt": 3}, 0),
        (codec.SCHEMA, {"state": "asking", "attempt": 3, "failures": 1}, 1),
    ],
)
def test_old_frames_count_all_but_the_last_attempt_as_failed(
    schema: int, frame: dict[str, Any], failures: int
) -> None:
    known = {"id": "0", "agent": "a", "fingerprint": "f", "prompt": "p"}
    now = codec.decode_continuation(document(schema, frames={"0": {**known, **frame}}))
    assert now.frame("0").failures == failures
    assert codec.decode_continuation(codec.encode_continuation(now)) == now


@pytest.mark.parametrize("schema", [1, 2, codec.SCHEMA])
def test_frames_that_are_none_are_unreadable_in_every_schema(schema: int) -> None:
    assert codec.decode_continuation(document(schema)) == Continuation(run=RUN)
    none: list[Any] = [None, 7, [], {"0": None}, {"0": []}, {"0": {"attempt": None}}, {"0": {}}]
    for frames in none:
        with pytest.raises(Unreadable):
            codec.decode_continuation(document(schema, frames=frames))


def test_omitted_fields_of_this_schema_are_not_guessed() -> None:
    assert codec.decode_continuation(document(4, requester="ada")).origin == ("ada",)
    assert codec.decode_continuation(document(codec.SCHEMA, requester="ada")).origin == ()


def referring(outcome: Any) -> str:
    text = codec.encode_continuation(Continuation(run=RUN, outcome={"here": 1}))
    stored = json.dumps(outcome, separators=(",", ":"))
    text = text.replace(f'{{"schema":{codec.SCHEMA}', f'{{"schema":{codec.REFERRING}')
    return text.replace('{"here":1}', stored)


def outcome_of(outcome: Any, event: Event = RETURNED) -> Any:
    """Return the restored value, with this as the second event of entry 7."""
    texts = {7: codec.encode_entry(Entry(at=AT, events=(STARTED[0], event)))}
    now = codec.decode_continuation(referring(outcome), texts.__getitem__)
    assert now.schema == codec.SCHEMA
    return now.outcome


def test_references_find_values_by_field_name() -> None:
    assert outcome_of({"$": [7, 1, "result"]}) == VALUE
    proposed = replied(calls=(Proposal(tool="t", args=VALUE),))
    assert outcome_of({"$": [7, 1, 0]}, proposed) == VALUE


@pytest.mark.parametrize("value", [{"$": [1, 0, "input"]}, {"$": {"is": 1}}, {"$": None}], ids=str)
def test_a_value_that_looks_like_a_reference_is_escaped(value: Any) -> None:
    assert outcome_of({"$": {"is": value}}) == value
    for plain in ({"$": 1, "is": 2}, {"is": value}, {}, "$", ["$"]):
        assert outcome_of(plain) == plain


@pytest.mark.parametrize(
    "place",
    [[99, 0, "result"], [7, 9, "result"], [7, 1, "nothing"], [7, 1, 0], [7, 1], 5, {}, {"was": 1}],
    ids=str,
)
def test_a_reference_to_a_missing_value_is_unreadable(place: Any) -> None:
    with pytest.raises(Unreadable, match="there is nothing at"):
        outcome_of({"$": place})
    with pytest.raises(Unreadable):
        codec.decode_continuation(referring({"$": place}))


@cache
def forms() -> tuple[str, str]:
    text = codec.encode_entry(returned("x"))
    return text, stored_text(text)


def test_the_dictionary_is_that_of_its_schema() -> None:
    text, stored = forms()
    assert hashlib.sha256(compression._DICTIONARY).hexdigest() == DICTIONARY_OF_SCHEMA_8
    assert stored.startswith('{"schema":8,"z":"')
    assert 2 * len(stored) < len(text)


@given(st.text(max_size=300) | st.dictionaries(st.text(max_size=9), st.integers(0, 9)))
def test_an_entry_comes_back_as_it_was_stored(result: Any) -> None:
    try:
        text = codec.encode_entry(returned(result))
    except NotJson:
        return
    stored = stored_text(text)
    assert stored.isascii()
    assert len(stored) <= len(text)
    assert plain_text(stored) == text
    assert codec.decode_entry(stored) == returned(result)


@pytest.mark.parametrize(
    "result",
    ["".join(Random(1).choices(LETTERS, k=3_000)), "x" * compression.MAX_CHARACTERS],
    ids=["does not get shorter", "long: Postgres compresses it"],
)
def test_an_entry_is_stored_as_it_is_if_it(result: str) -> None:
    text = codec.encode_entry(returned(result))
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
    plain, stored = forms()
    for text in (f'{{"schema":8,"z":"{inner(plain)}"}}', f"{stored} ", f" {stored}"):
        with pytest.raises((Unreadable, NewerSchema)):
            codec.decode_entry(text)


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
    conversations.read(stored_text(codec.encode_entry(Entry(at=AT, events=(STARTED[0],)))))
    assert conversations.whole  # otherwise every entry would be folded

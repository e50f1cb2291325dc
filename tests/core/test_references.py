"""A continuation that refers to its run's entries is read as what it was written from."""

import json
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from runtime.core.codec import decode_continuation, encode_continuation
from runtime.core.continuation import Continuation
from runtime.core.errors import Unreadable
from runtime.core.events import (
    CallRefused,
    Compacted,
    Event,
    FrameClosed,
    ModelReplied,
    RunStarted,
    ToolFailed,
    ToolReturned,
)
from runtime.core.replay import Entry, initial, step
from tests.core.test_transitions import AT, STARTED

LONG = "x" * 100
PLAIN = st.none() | st.booleans() | st.integers(-10, 10) | st.text(max_size=50)
JSON = st.recursive(
    PLAIN | st.just({"$": [1, 0, "input"]}),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["$", "is", "content"]), inner, max_size=2)
    ),
    max_leaves=6,
)


def run_of(result: Any) -> tuple[Continuation, dict[int, Entry]]:
    """A run one of whose calls returned this, with its entries by position."""
    events = (
        *((one,) for one in STARTED),
        (ToolReturned(frame="0", call="c1.0", attempt=1, result=result),),
    )
    entries = {n: Entry(at=AT, events=one) for n, one in enumerate(events, start=1)}
    now = initial(UUID(int=1))
    for position, entry in entries.items():
        now = step(now, entry.events, head=str(position), at=AT)
    return now, entries


@given(result=JSON, until=st.integers(1, 6))
@example(result={"$": [1, 0, "input"]}, until=1)
@example(result={"$": {"is": 1}}, until=1)
def test_whatever_a_tool_returns_is_read_as_it_was(result: Any, until: int) -> None:
    """Also if it looks like a reference, and if it is in no entry that may be referred to."""
    now, entries = run_of(result)
    told = {position: entry for position, entry in entries.items() if position <= until}
    read = decode_continuation(encode_continuation(now, told), told.__getitem__)
    assert read == now
    assert json.dumps(read.call("0", "c1.0").result) == json.dumps(result)


def test_a_long_value_is_written_once() -> None:
    now, entries = run_of({"text": LONG})
    assert LONG not in encode_continuation(now, entries)
    assert encode_continuation(now).count(LONG) == 2  # with its call, and as the model hears it


@pytest.mark.parametrize(
    "place",
    [
        [99, 0, "result"],
        [0, 0, "result"],
        [5, 9, "result"],
        [5, 0, "nothing"],
        [5, 0, 0],
        [5, 0],
        5,
        {},
        {"was": 1},
    ],
    ids=str,
)
def test_a_reference_to_what_is_not_there_is_unreadable(place: Any) -> None:
    now, entries = run_of({"text": LONG})
    text = encode_continuation(now, entries)
    position = max(entries)
    broken = text.replace(
        f'{{"$":[{position},0,"result"]}}', json.dumps({"$": place}, separators=(",", ":"))
    )
    assert broken != text
    with pytest.raises(Unreadable, match="there is nothing at"):
        decode_continuation(broken, entries.__getitem__)


def test_without_entries_it_is_not_read() -> None:
    now, entries = run_of({"text": LONG})
    with pytest.raises(Unreadable):
        decode_continuation(encode_continuation(now, entries))


VALUE = {"text": LONG}
HAVING: list[tuple[Event, str | int]] = [
    (RunStarted(agent="a", input=VALUE, requester="ada"), "input"),
    (ModelReplied(frame="0", reply=VALUE, text="", calls=(), usage={}), "reply"),
    (ModelReplied(frame="0", reply=None, text=LONG, calls=(), usage={}), "text"),
    (ModelReplied(frame="0", reply=None, text="", calls=(), usage={}, output=VALUE), "output"),
    (ToolReturned(frame="0", call="c1.0", attempt=1, result=VALUE), "result"),
    (FrameClosed(frame="0", outcome="answered", content=VALUE), "content"),
    (ToolFailed(frame="0", call="c1.0", attempt=1, error=LONG), "error"),
    (CallRefused(frame="0", call="c1.0", reason=LONG), "reason"),
    (Compacted(frame="0", until=2, summary=LONG, by="author", usage={}), "summary"),
]


@pytest.mark.parametrize(("event", "name"), HAVING, ids=[str(name) for _, name in HAVING])
def test_what_an_event_has_is_referred_to_by_the_name_of_its_field(event: Event, name: str) -> None:
    now = Continuation(run=UUID(int=1), outcome=getattr(event, name))
    entries = {7: Entry(at=AT, events=(STARTED[0], event))}
    text = encode_continuation(now, entries)
    assert json.loads(text)["outcome"] == {"$": [7, 1, name]}
    assert decode_continuation(text, entries.__getitem__) == now


@pytest.mark.parametrize(
    ("value", "refers"),
    [("x" * 32, False), ("x" * 33, True), ({}, False), ([], False), ([1], True), (True, False)],
)
def test_what_is_short_is_written_out(value: Any, refers: bool) -> None:
    event = ToolReturned(frame="0", call="c1.0", attempt=1, result=value)
    now = Continuation(run=UUID(int=1), outcome=value)
    text = encode_continuation(now, {1: Entry(at=AT, events=(event,))})
    assert json.loads(text)["outcome"] == ({"$": [1, 0, "result"]} if refers else value)


def test_what_looks_like_a_reference_is_stored_so() -> None:
    now = Continuation(run=UUID(int=1), outcome={"$": [1, 0, "input"]})
    text = encode_continuation(now, {1: Entry(at=AT, events=(STARTED[0],))})
    assert json.loads(text)["outcome"] == {"$": {"is": {"$": [1, 0, "input"]}}}

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
from runtime.core.events import ToolReturned
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

"""A continuation of the release before, which refers to its run's entries, reads back equal to its source."""

import json
from typing import Any
from uuid import UUID

import pytest

from runtime.core.continuation import Continuation
from runtime.core.documents.codec import (
    REFERRING,
    SCHEMA,
    decode_continuation,
    encode_continuation,
    encode_entry,
)
from runtime.core.errors import Unreadable
from runtime.core.events import (
    CallRefused,
    Compacted,
    Event,
    FrameClosed,
    ModelReplied,
    Proposal,
    RunStarted,
    ToolFailed,
    ToolReturned,
)
from runtime.core.machine.replay import Entry
from tests.core.machine.events import STARTED
from tests.core.machine.walks import AT

LONG = "x" * 100
VALUE = {"text": LONG}
HAVING: list[tuple[Event, str | int]] = [
    (RunStarted(agent="a", input=VALUE, requester="ada"), "input"),
    (ModelReplied(frame="0", reply=VALUE, text="", calls=(), usage={}), "reply"),
    (ModelReplied(frame="0", reply=None, text=LONG, calls=(), usage={}), "text"),
    (ModelReplied(frame="0", reply=None, text="", calls=(), usage={}, output=VALUE), "output"),
    (
        ModelReplied(
            frame="0", reply=None, text="", calls=(Proposal(tool="t", args=VALUE),), usage={}
        ),
        0,
    ),
    (ToolReturned(frame="0", call="c1.0", attempt=1, result=VALUE), "result"),
    (FrameClosed(frame="0", outcome="answered", content=VALUE), "content"),
    (ToolFailed(frame="0", call="c1.0", attempt=1, error=LONG), "error"),
    (CallRefused(frame="0", call="c1.0", reason=LONG), "reason"),
    (Compacted(frame="0", until=2, summary=LONG, by="author", usage={}), "summary"),
]


def referring(outcome: Any) -> str:
    """A run whose outcome is stored so."""
    text = encode_continuation(Continuation(run=UUID(int=1), outcome={"here": 1}))
    stored = json.dumps(outcome, separators=(",", ":"))
    return text.replace(f'{{"schema":{SCHEMA}', f'{{"schema":{REFERRING}').replace(
        '{"here":1}', stored
    )


def outcome_of(outcome: Any, *events: Event) -> Any:
    """Return the restored value, with these as the events of entry 7."""
    texts = {7: encode_entry(Entry(at=AT, events=events))}
    now = decode_continuation(referring(outcome), texts.__getitem__)
    assert now.schema == SCHEMA
    return now.outcome


@pytest.mark.parametrize(("event", "name"), HAVING, ids=[str(name) for _, name in HAVING])
def test_references_find_values_by_field_name(event: Event, name: str | int) -> None:
    found = outcome_of({"$": [7, 1, name]}, STARTED[0], event)
    assert found == (VALUE if isinstance(name, int) else getattr(event, name))


@pytest.mark.parametrize("value", [{"$": [1, 0, "input"]}, {"$": {"is": 1}}, {"$": None}], ids=str)
def test_escaped_values_are_read_back_unchanged(value: Any) -> None:
    assert outcome_of({"$": {"is": value}}, STARTED[0]) == value


@pytest.mark.parametrize("value", [{"$": 1, "is": 2}, {"is": 1}, {}, "$", ["$"]], ids=str)
def test_values_without_a_reference_are_read_unchanged(value: Any) -> None:
    assert outcome_of(value, STARTED[0]) == value


@pytest.mark.parametrize(
    "place",
    [
        [99, 0, "result"],
        [0, 0, "result"],
        [7, 9, "result"],
        [7, 0, "nothing"],
        [7, 0, 0],
        [7, 0],
        5,
        {},
        {"was": 1},
    ],
    ids=str,
)
def test_a_reference_to_a_missing_value_is_unreadable(place: Any) -> None:
    with pytest.raises(Unreadable, match="there is nothing at"):
        outcome_of({"$": place}, ToolReturned(frame="0", call="c1.0", attempt=1, result=VALUE))


def test_without_entries_it_is_not_read() -> None:
    with pytest.raises(Unreadable):
        decode_continuation(referring({"$": [7, 0, "result"]}))

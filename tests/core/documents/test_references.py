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
from runtime.core.events import Event, Proposal, ToolReturned
from runtime.core.machine.replay import Entry
from tests.core.machine.events import STARTED, replied
from tests.core.machine.walks import AT

VALUE = {"text": "x" * 100}
RETURNED = ToolReturned(frame="0", call="c1.0", attempt=1, result=VALUE)


def referring(outcome: Any) -> str:
    """A run whose outcome is stored so."""
    text = encode_continuation(Continuation(run=UUID(int=1), outcome={"here": 1}))
    stored = json.dumps(outcome, separators=(",", ":"))
    return text.replace(f'{{"schema":{SCHEMA}', f'{{"schema":{REFERRING}').replace(
        '{"here":1}', stored
    )


def outcome_of(outcome: Any, event: Event = RETURNED) -> Any:
    """Return the restored value, with this as the second event of entry 7."""
    texts = {7: encode_entry(Entry(at=AT, events=(STARTED[0], event)))}
    now = decode_continuation(referring(outcome), texts.__getitem__)
    assert now.schema == SCHEMA
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
    [
        [99, 0, "result"],
        [7, 9, "result"],
        [7, 1, "nothing"],
        [7, 1, 0],
        [7, 1],
        5,
        {},
        {"was": 1},
    ],
    ids=str,
)
def test_a_reference_to_a_missing_value_is_unreadable(place: Any) -> None:
    with pytest.raises(Unreadable, match="there is nothing at"):
        outcome_of({"$": place})
    with pytest.raises(Unreadable):
        decode_continuation(referring({"$": place}))

"""The key that a definition gives an event, and how long an event waits for others of its key."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from runtime.core.values.limits import MAX_KEY
from runtime.errors import InvalidInput
from runtime.store.tables.occurrences import WaitingEvent
from runtime.triggers.event_definition import MAX_DEBOUNCES, EventDefinition, plan_starts

AT = datetime(2026, 1, 1, tzinfo=UTC)
DEFINITION: dict[str, Any] = {
    "name": "New people",
    "agent": "a",
    "event": "person",
    "filter": "",
    "mapping": {},
    "key": "data",
    "business_key": "",
    "at_once": None,
    "at_once_per_key": None,
    "debounce": 0,
    "rate": None,
    "rate_seconds": 60,
}


@pytest.mark.parametrize("data", [None, "", [], ["a"], {"a": 1}, "x" * (MAX_KEY + 1)])
def test_a_key_is_one_short_value(data: Any) -> None:
    facts = {"id": "1", "source": "s", "name": "person", "subject": "", "time": "", "data": data}
    definition = EventDefinition(**DEFINITION)
    with pytest.raises(InvalidInput) as caught:
        definition.key_of(facts)
    assert caught.value.field == "key"
    assert definition.key_of({**facts, "data": "x" * MAX_KEY}) == "x" * MAX_KEY
    assert definition.key_of({**facts, "data": 7}) == "7"


def test_an_event_waits_no_longer_than_some_debounces_while_others_come() -> None:
    definition = EventDefinition(**DEFINITION | {"debounce": 10})
    most = MAX_DEBOUNCES * timedelta(seconds=10)
    last = WaitingEvent(number=2, key="k", at=AT + most - timedelta(seconds=1), first_at=AT)
    end = AT + most
    early = plan_starts(definition, [last], {}, (), end - timedelta(microseconds=1))
    assert (early.start, early.next_at) == ((), end)
    assert plan_starts(definition, [last], {}, (), end).start == (last,)

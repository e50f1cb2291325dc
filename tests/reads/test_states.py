"""A page that shows one state of a long run keeps that state alone: all of them take memory in the square."""

import tracemalloc
from collections.abc import Callable, Iterable
from datetime import timedelta
from uuid import UUID

import pytest

from runtime.core.run.events import Event
from runtime.core.run.reducer import Entry
from runtime.reads import entries
from runtime.reads.journal import JournalLine, Remaining, latest
from runtime.reads.run_page import usage_of
from tests.core.run.events import AT, begun, opened
from tests.core.run.test_compaction import turn

RUN = UUID(int=1)
LONG = [begun(), opened(), *[event for number in range(1, 401) for event in turn(number)]]
MAX_BYTES = 6_000_000  # all states take 7,600,000, and with the documents of two 11,700,000


def lines_of(events: Iterable[Event]) -> tuple[JournalLine, ...]:
    """A journal with one event in each entry, a second apart."""
    entries = [
        Entry(at=AT + timedelta(seconds=at), events=(event,)) for at, event in enumerate(events, 1)
    ]
    return tuple(JournalLine(position=at, entry=one, mac="") for at, one in enumerate(entries, 1))


LINES = lines_of(LONG)
WHOLE = Remaining(run=RUN, lines=LINES)


@pytest.mark.django_db  # the titles of agents
@pytest.mark.parametrize(
    "shown",
    [
        lambda: usage_of(latest(WHOLE.start, WHOLE.lines)),
        lambda: entries.state_after(RUN, len(LINES)),
    ],
)
def test_not_all_states_of_a_long_run_are_in_memory_at_once(
    shown: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entries, "remaining", lambda *_, **__: WHOLE)
    tracemalloc.start()
    try:
        assert shown()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MAX_BYTES

"""A page that shows one state of a long run keeps that state alone: all of them take memory in the square."""

import tracemalloc
from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

import pytest

from runtime.core.machine.replay import Entry
from runtime.queries.budget_usage import usage_of
from runtime.queries.history import state_at
from runtime.queries.journal import JournalLine
from tests.core.machine.events import begun, opened
from tests.core.machine.test_compaction import turn
from tests.core.machine.walks import AT

RUN = UUID(int=1)
LONG = [begun(), opened(), *[event for number in range(1, 401) for event in turn(number)]]
LINES = tuple(
    JournalLine(position=at, entry=Entry(at=AT + timedelta(seconds=at), events=(event,)), mac="")
    for at, event in enumerate(LONG, 1)
)
MAX_BYTES = (
    6_000_000  # all states of this run take 7,600,000, and with the documents of two 11,700,000
)


def _usage() -> object:
    return usage_of(RUN, LINES)


def _state() -> object:
    return state_at.state_after(RUN, len(LINES))


@pytest.mark.parametrize("shown", [_usage, _state])
def test_not_all_states_of_a_long_run_are_in_memory_at_once(
    shown: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_at, "read", lambda *_, **__: LINES)
    tracemalloc.start()
    try:
        assert shown()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MAX_BYTES


def test_the_state_after_an_entry_follows_the_state_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_at, "read", lambda *_, until, **__: LINES[:until])
    first = state_at.state_after(RUN, 1)
    assert first is not None
    assert first.unreadable is None
    found = state_at.state_after(RUN, 5)
    assert found is not None
    assert found.events == ("ToolStarted",)
    assert "0/c1.0" in [move.place for move in found.moves]


def test_the_first_unreadable_entry_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = JournalLine(position=3, entry=None, mac="")
    monkeypatch.setattr(state_at, "read", lambda *_, **__: (*LINES[:2], broken, *LINES[3:5]))
    found = state_at.state_after(RUN, 5)
    assert found is not None
    assert found.unreadable == 3
    assert found.document is None

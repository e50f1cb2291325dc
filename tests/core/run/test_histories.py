"""The core over many seeded histories: replay, cuts, round trips, and what every state must satisfy."""

import itertools
import os
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from runtime.core.documents.continuations import encode_continuation
from runtime.core.run.events import EVENT_TYPES
from runtime.core.run.reducer import evolve
from runtime.core.run.transitions import CALLS, FRAMES, PACES, RUNS, look_up_next_state
from runtime.core.values.errors import CoreError
from tests.core.run import invariants
from tests.core.run.walks import Walk

TAKEN: set[tuple[str, str]] = set()


def _watched(table: Any, state: Any, trigger: str, *, subject: str) -> Any:
    """The core's look-up in its tables, noting which keys the walks take."""
    after = look_up_next_state(table, state, trigger, subject=subject)
    TAKEN.add((type(state).__name__, f"{state} {trigger}"))
    return after


@cache
def every() -> list[Walk]:
    """Build the histories for the first test that asks, so that collecting the tests takes no time."""
    modules = ("reducer", "calls", "frames", "gates", "forks")
    with pytest.MonkeyPatch.context() as patch:
        for module in modules:
            patch.setattr(f"runtime.core.run.{module}.look_up_next_state", _watched)
        return [Walk(seed) for seed in range(int(os.environ.get("SIGNOFF_WALKS", "2000")))]


def first(count: int = 100) -> list[Walk]:
    """Return walks for tests that check every state."""
    return every()[:count]


@pytest.mark.parametrize(
    "holds",
    [
        invariants.replay_is_the_live_state,
        invariants.states_survive_their_json,
        invariants.the_entry_survives_its_json,
        invariants.a_live_run_is_never_stuck,
        invariants.an_ended_run_takes_no_event_and_plans_nothing,
    ],
)
def test_every_state_satisfies_its_invariants(holds: Callable[[Walk], None]) -> None:
    for walk in first():
        holds(walk)


@pytest.mark.parametrize(
    ("holds", "share"),
    [
        (invariants.a_write_is_started_once_per_approval, 1),
        (invariants.a_frame_that_does_not_act_has_no_open_call, 0.5),
        (invariants.results_are_in_proposal_order, 0.1),
        (invariants.so_many_calls_are_open_at_once_and_the_next_follow_in_order, 0.5),
        (invariants.nothing_starts_after_a_cancellation, 0.05),
        (invariants.a_paused_run_rests_and_goes_on_where_it_was, 0.05),
        (invariants.no_answer_is_the_last_before_everything_was_heard, 0.05),
    ],
)
def test_every_history_satisfies_its_invariants(holds: Callable[[Walk], int], share: float) -> None:
    assert sum(map(holds, every())) > share * len(every())


def test_an_event_that_is_not_legal_raises_and_changes_nothing() -> None:
    refused = 0
    for walk in first(40):
        for state, event in itertools.product(walk.states[::9], walk.history[::5]):
            before = encode_continuation(state)
            try:
                evolve(state, event)
            except CoreError:
                refused += 1
            assert encode_continuation(state) == before
    assert refused > 1000


@pytest.mark.slow
def test_the_walks_take_every_event_type_and_table_key() -> None:
    assert {type(event) for walk in every() for event in walk.history} == set(EVENT_TYPES)
    tables: list[dict[tuple[Any, str], Any]] = [RUNS, PACES, FRAMES, CALLS]
    keys = {
        (type(state).__name__, f"{state} {trigger}") for table in tables for state, trigger in table
    }
    assert keys == TAKEN

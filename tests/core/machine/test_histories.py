"""The core over many seeded histories: replay, cuts, round trips, and what every state must satisfy."""

import itertools
import os
import statistics
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from runtime.core.continuation import Continuation
from runtime.core.documents.codec import encode_continuation
from runtime.core.errors import CoreError
from runtime.core.events import EVENT_TYPES
from runtime.core.ids import depth_of
from runtime.core.machine.planning import plan
from runtime.core.machine.reducer import evolve
from runtime.core.machine.replay import initial, step
from runtime.core.machine.transitions import CALLS, FRAMES, PACES, RUNS, next_state
from tests.core.machine import invariants
from tests.core.machine.walks import AT, Walk

TAKEN: set[tuple[str, str]] = set()


def _watched(table: Any, state: Any, trigger: str, *, subject: str) -> Any:
    """The core's look-up in its tables, noting which keys the walks take."""
    after = next_state(table, state, trigger, subject=subject)
    TAKEN.add((type(state).__name__, f"{state} {trigger}"))
    return after


@cache
def every() -> list[Walk]:
    """Build the histories for the first test that asks, so that collecting the tests takes no time."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (
            "reducer",
            "agent_changes",
            "gates",
            "compaction",
            "messages",
            "failed_runs",
        ):
            patch.setattr(f"runtime.core.machine.{module}.next_state", _watched)
        return [Walk(seed) for seed in range(int(os.environ.get("ABEYANCE_WALKS", "2000")))]


def first(count: int = 100) -> list[Walk]:
    """Return walks for tests that check every state."""
    return every()[:count]


def test_replay_equals_the_live_state_however_the_history_is_cut() -> None:
    for walk in first():
        invariants.replay_is_the_live_state(walk)


def test_a_seed_gives_the_same_history_again() -> None:
    assert [Walk(seed).history for seed in range(20)] == [walk.history for walk in first(20)]


def test_every_state_survives_its_json_text() -> None:
    for walk in first():
        invariants.states_survive_their_json(walk)


def test_every_entry_survives_its_json_text() -> None:
    for walk in first():
        invariants.the_entry_survives_its_json(walk)


def test_entries_number_the_states() -> None:
    walk = first()[0]
    now = initial(walk.now.run)
    for event in walk.history:
        now = step(now, [event], head="mac", at=AT)
    assert now == replace(walk.now, position=len(walk.history), head="mac")


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


def test_the_walks_take_every_event_type_and_table_key() -> None:
    assert {type(event) for walk in every() for event in walk.history} == set(EVENT_TYPES)
    tables: list[dict[tuple[Any, str], Any]] = [RUNS, PACES, FRAMES, CALLS]
    keys = {
        (type(state).__name__, f"{state} {trigger}") for table in tables for state, trigger in table
    }
    assert keys == TAKEN


def test_the_walks_are_long_and_deep_and_wait_at_several_gates() -> None:
    assert statistics.median(len(walk.history) for walk in every()) >= 30
    deep = [
        walk
        for walk in every()
        if any(_depth(now) >= 3 and len(now.pending) >= 2 for now in walk.states)
    ]
    assert len(deep) >= len(every()) / 10


def test_a_live_run_has_a_plan_running_work_or_an_open_gate() -> None:
    for walk in first():
        invariants.a_live_run_is_never_stuck(walk)


def test_a_gated_call_starts_only_once_per_approval() -> None:
    assert sum(map(invariants.a_write_is_started_once_per_approval, every())) > len(every())


def test_nothing_starts_after_a_cancellation() -> None:
    for walk in every():
        invariants.nothing_starts_after_a_cancellation(walk)


def test_results_are_given_in_proposal_order() -> None:
    assert sum(map(invariants.results_are_in_proposal_order, first())) > 10


@pytest.mark.parametrize("seed", range(20))
def test_an_ended_run_takes_no_event_and_plans_nothing(seed: int) -> None:
    walk = first()[seed]
    if walk.now.ended:
        assert plan(walk.now) == ()
        for event in walk.history:
            if invariants.elsewhere(walk, event):
                continue  # elsewhere it goes on
            with pytest.raises(CoreError):
                evolve(walk.now, event)


def _depth(now: Continuation) -> int:
    return max((depth_of(frame) for frame in now.frames), default=0)


def test_only_a_frame_that_acts_has_open_calls() -> None:
    assert (
        sum(map(invariants.a_frame_that_does_not_act_has_no_open_call, every())) > len(every()) / 2
    )


def test_a_paused_run_plans_nothing_and_goes_on_where_it_was() -> None:
    assert (
        sum(map(invariants.a_paused_run_rests_and_goes_on_where_it_was, every()))
        > len(every()) / 20
    )


def test_a_run_answers_only_after_its_last_message() -> None:
    assert (
        sum(map(invariants.no_answer_is_the_last_before_everything_was_heard, every()))
        > len(every()) / 20
    )

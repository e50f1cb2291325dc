"""The pure core over many more seeds than its own tests take, with nothing kept of a history once it was looked at.

FAULTS_R4 says how many.
"""

import time

import pytest

from runtime.core.events import EVENT_TYPES
from tests.core import invariants
from tests.core.walks import Walk
from tests.faults.counts import count
from tests.faults.figures import say

pytestmark = pytest.mark.faults

SEEDS = count("R4", short=200, long=100_000)
FIRST = 1_000_000  # those below are walked in tests/core


def test_whatever_happens_to_a_run_its_history_satisfies_what_every_history_must() -> None:
    began_at = time.monotonic()
    events = starts = pauses = live = 0
    kinds: set[type] = set()
    for seed in range(FIRST, FIRST + SEEDS):
        walk = Walk(seed)
        invariants.replay_is_the_live_state(walk, every=31)
        invariants.states_survive_their_json(walk, every=13)
        invariants.the_entry_survives_its_json(walk)
        invariants.a_live_run_is_never_stuck(walk)
        invariants.nothing_starts_after_a_cancellation(walk)
        invariants.results_are_in_proposal_order(walk)
        starts += invariants.a_write_is_started_once_per_approval(walk)
        pauses += invariants.a_paused_run_rests_and_goes_on_where_it_was(walk)
        invariants.no_answer_is_the_last_before_everything_was_heard(walk)
        events += len(walk.history)
        live += not walk.now.ended
        kinds |= {type(event) for event in walk.history}
    say(
        f"FIGURES simulated core: {SEEDS} seeds from {FIRST} on, {events} events of {len(kinds)} kinds,"
        f" {starts} calls started, {pauses} pauses, {live} histories that ended at a gate, 0 broken,"
        f" {time.monotonic() - began_at:.0f} s"
    )
    assert kinds == set(EVENT_TYPES)

"""The pure core over many more seeds than its own tests take, with nothing kept of a history once it was looked at.

Runs in the long form only. FAULTS_R4 says how many, FAULTS_R4_FROM the first; each core of the machine takes its share.
"""

import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor

import pytest

from runtime.core.run.events import EVENT_TYPES
from tests.core.run import invariants
from tests.core.run.walks import Walk
from tests.system.fault_injection.harness.counts import count
from tests.system.fault_injection.harness.figures import say

pytestmark = pytest.mark.faults

SEEDS = count("R4", short=0, long=100_000)
FIRST = count("R4_FROM", short=1_000_000, long=1_000_000)  # those below are walked in tests/core


def test_every_history_satisfies_the_invariants() -> None:
    began_at = time.monotonic()
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(mp_context=fresh) as pool:
        kinds = set[type]().union(*pool.map(_walk, range(FIRST, FIRST + SEEDS), chunksize=20))
    seconds = time.monotonic() - began_at
    say(f"FIGURES simulated core: {SEEDS} seeds from {FIRST} on, 0 broken, {seconds:.0f} s")
    assert kinds == set(EVENT_TYPES)


def _walk(seed: int) -> set[type]:
    """Return the kinds of its events."""
    walk = Walk(seed)
    invariants.replay_is_the_live_state(walk, every=31)
    invariants.states_survive_their_json(walk, every=13)
    invariants.the_entry_survives_its_json(walk)
    invariants.a_live_run_is_never_stuck(walk)
    invariants.nothing_starts_after_a_cancellation(walk)
    invariants.results_are_in_proposal_order(walk)
    invariants.no_answer_is_the_last_before_everything_was_heard(walk)
    invariants.a_write_is_started_once_per_approval(walk)
    invariants.a_paused_run_rests_and_goes_on_where_it_was(walk)
    return {type(event) for event in walk.history}

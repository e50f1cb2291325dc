"""The core over many seeded histories: replay, cuts, round trips, and what every state must satisfy."""

import itertools
import os
import statistics
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from runtime.core.codec import (
    decode_continuation,
    decode_entry,
    encode_continuation,
    encode_entry,
)
from runtime.core.continuation import CallState, Continuation, Phase
from runtime.core.decisions import Verdict
from runtime.core.errors import CoreError
from runtime.core.events import (
    EVENT_TYPES,
    Event,
    FrameOpened,
    GateDecided,
    Imported,
    OutcomeUnknown,
    Paused,
    Resumed,
    ToolStarted,
)
from runtime.core.ids import depth_of
from runtime.core.planning import plan
from runtime.core.reducer import evolve
from runtime.core.replay import Entry, fold, initial, step
from runtime.core.transitions import CALLS, FRAMES, PACES, RUNS, next_state
from tests.core.walks import Walk

SEEDS = int(os.environ.get("ABEYANCE_WALKS", "2000"))
TAKEN: set[tuple[str, str]] = set()


def _watched(table: Any, state: Any, trigger: str, *, subject: str) -> Any:
    """The core's look-up in its tables, noting which keys the walks take."""
    after = next_state(table, state, trigger, subject=subject)
    TAKEN.add((type(state).__name__, f"{state} {trigger}"))
    return after


with pytest.MonkeyPatch.context() as patch:
    patch.setattr("runtime.core.reducer.next_state", _watched)
    patch.setattr("runtime.core.versions.next_state", _watched)
    patch.setattr("runtime.core.halts.next_state", _watched)
    patch.setattr("runtime.core.compaction.next_state", _watched)
    patch.setattr("runtime.core.messages.next_state", _watched)
    ALL = [Walk(seed) for seed in range(SEEDS)]
WALKS = ALL[:200]  # for what looks at every state
AT = datetime(2026, 1, 1, tzinfo=UTC)


def test_replay_equals_the_live_state_however_the_history_is_cut() -> None:
    for walk in WALKS:
        for cut in range(0, len(walk.history), 7):
            base = decode_continuation(encode_continuation(walk.states[cut]))
            assert fold(base, walk.history[cut:]) == walk.now


def test_a_seed_gives_the_same_history_again() -> None:
    assert [Walk(seed).history for seed in range(20)] == [walk.history for walk in WALKS[:20]]


def test_every_state_survives_its_json_text() -> None:
    for walk in WALKS:
        for state in walk.states:
            assert decode_continuation(encode_continuation(state)) == state


def test_every_entry_survives_its_json_text() -> None:
    for walk in WALKS:
        entry = Entry(at=AT, events=tuple(walk.history))
        assert decode_entry(encode_entry(entry)) == entry
        assert encode_entry(entry).isascii()


def test_entries_number_the_states() -> None:
    walk = WALKS[0]
    now = initial(walk.now.run)
    for event in walk.history:
        now = step(now, [event], head="mac", at=AT)
    assert now == replace(walk.now, position=len(walk.history), head="mac")


def test_an_event_that_is_not_legal_raises_and_changes_nothing() -> None:
    refused = 0
    for walk in WALKS[:40]:
        for state, event in itertools.product(walk.states[::9], walk.history[::5]):
            before = encode_continuation(state)
            try:
                evolve(state, event)
            except CoreError:
                refused += 1
            assert encode_continuation(state) == before
    assert refused > 1000


def test_the_walks_take_every_event_type_and_every_key_of_every_table() -> None:
    assert {type(event) for walk in ALL for event in walk.history} == set(EVENT_TYPES)
    tables: list[dict[tuple[Any, str], Any]] = [RUNS, PACES, FRAMES, CALLS]
    keys = {
        (type(state).__name__, f"{state} {trigger}") for table in tables for state, trigger in table
    }
    assert keys == TAKEN


def test_the_walks_are_long_deep_and_wait_at_several_gates_at_once() -> None:
    assert statistics.median(len(walk.history) for walk in ALL) >= 30
    deep = [
        walk
        for walk in ALL
        if any(_depth(now) >= 3 and len(now.pending) >= 2 for now in walk.states)
    ]
    assert len(deep) >= SEEDS / 10


def test_a_live_run_always_has_a_plan_or_work_under_way_or_an_open_gate() -> None:
    for walk in WALKS:
        for now in walk.states[1:]:
            if not now.ended:
                assert (
                    plan(now)
                    or now.pending
                    or now.waits()
                    or now.rests
                    or CallState.STARTED in _call_states(now)
                )


def test_a_write_is_started_once_per_approval_and_a_gated_call_only_after_one() -> None:
    starts = 0
    for walk in ALL:
        uncertain: set[tuple[str, str]] = set()
        for before, event in zip(walk.states, walk.history, strict=False):
            if isinstance(event, OutcomeUnknown):
                uncertain.add((event.frame, event.call))
            if isinstance(event, ToolStarted):
                starts += 1
                call = before.call(event.frame, event.call)
                assert call.terms is not None
                assert call.gate is None or _allowed(walk.history, call.gate)
                # After an outcome that nobody knows only a person's word starts a call again.
                assert (event.frame, event.call) not in uncertain or call.gate is not None
    assert starts > SEEDS


def test_nothing_starts_after_a_cancellation() -> None:
    for walk in ALL:
        for before, event in zip(walk.states, walk.history, strict=False):
            if before.phase is Phase.CANCELLING:
                assert not isinstance(event, ToolStarted | FrameOpened)


def test_results_are_given_in_proposal_order() -> None:
    seen = 0
    for walk in WALKS:
        for frame in walk.states[-2].frames.values():
            for said, heard in itertools.pairwise(frame.messages):
                if heard["role"] == "results":
                    assert [result["call"] for result in heard["results"]] == said["calls"]
                    seen += 1
    assert seen > 10


@pytest.mark.parametrize("seed", range(20))
def test_an_ended_run_takes_no_event_and_plans_nothing(seed: int) -> None:
    walk = WALKS[seed]
    if walk.now.ended:
        assert plan(walk.now) == ()
        for event in walk.history:
            if walk.now.phase is Phase.EXPORTED and isinstance(event, Imported):
                continue  # elsewhere it goes on
            with pytest.raises(CoreError):
                evolve(walk.now, event)


def _call_states(now: Continuation) -> set[CallState]:
    return {call.state for frame in now.frames.values() for call in frame.calls}


def _depth(now: Continuation) -> int:
    return max((depth_of(frame) for frame in now.frames), default=0)


def _allowed(history: list[Event], gate: object) -> bool:
    return any(
        isinstance(event, GateDecided)
        and event.gate == gate
        and event.verdict in (Verdict.APPROVE, Verdict.RUN_AGAIN)
        for event in history
    )


def test_a_paused_run_plans_nothing_and_goes_on_where_it_was() -> None:
    pauses = 0
    for walk in ALL:
        for before, event in zip(walk.states, walk.history, strict=False):
            if before.rests:
                assert plan(before) == ()
                assert before.waits() == ()
                assert not isinstance(event, ToolStarted | FrameOpened)
            if isinstance(event, Paused):
                pauses += 1
                resumed = evolve(evolve(before, event), Resumed(by="ada"))
                assert resumed == before
    assert pauses > 100

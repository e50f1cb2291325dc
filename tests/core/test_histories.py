"""The core over many seeded histories: replay, cuts, round trips, and what every state must satisfy."""

import itertools
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from runtime.core.codec import (
    decode_continuation,
    decode_entry,
    encode_continuation,
    encode_entry,
)
from runtime.core.continuation import SETTLED, CallState, Continuation, FrameState
from runtime.core.decisions import EffectClass
from runtime.core.errors import CoreError
from runtime.core.events import EVENT_TYPES, Event, GateDecided, ToolStarted
from runtime.core.ids import depth_of
from runtime.core.reducer import evolve, plan
from runtime.core.replay import Entry, fold, initial, step
from runtime.core.transitions import CALLS, FRAMES
from tests.core.walks import Walk

WALKS = [Walk(seed) for seed in range(200)]
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
        now = step(now, [event], head="mac")
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


def test_the_walks_take_every_event_type_and_every_call_and_frame_transition() -> None:
    assert {type(event) for walk in WALKS for event in walk.history} == set(EVENT_TYPES)
    assert {CallState(state) for state, _ in CALLS} | SETTLED == set(CallState)
    assert {state for walk in WALKS for now in walk.states for state in _call_states(now)} == set(
        CallState
    )
    assert {state for state, _ in FRAMES} == set(FrameState) - {FrameState.CLOSED}


def test_the_walks_are_deep_and_wait_at_several_gates_at_once() -> None:
    assert max(_depth(now) for walk in WALKS for now in walk.states) >= 3
    assert max(len(now.pending) for walk in WALKS for now in walk.states) >= 3


def test_a_live_run_always_has_a_plan_or_work_under_way_or_an_open_gate() -> None:
    for walk in WALKS:
        for now in walk.states[1:]:
            if not now.ended:
                assert plan(now) or now.pending or CallState.STARTED in _call_states(now)


def test_a_write_is_started_at_most_once_and_a_gated_call_only_after_its_approval() -> None:
    for walk in WALKS:
        starts: set[tuple[str, str]] = set()
        for before, event in zip(walk.states, walk.history, strict=False):
            if isinstance(event, ToolStarted):
                call = before.call(event.frame, event.call)
                assert call.terms is not None
                place = (event.frame, event.call)
                assert call.terms.effect is not EffectClass.WRITE or place not in starts
                assert call.gate is None or _approved(walk.history, call.gate)
                starts.add(place)


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
            with pytest.raises(CoreError):
                evolve(walk.now, event)


def _call_states(now: Continuation) -> set[CallState]:
    return {call.state for frame in now.frames.values() for call in frame.calls}


def _depth(now: Continuation) -> int:
    return max((depth_of(frame) for frame in now.frames), default=0)


def _approved(history: list[Event], gate: object) -> bool:
    return any(
        isinstance(event, GateDecided) and event.gate == gate and event.verdict == "approve"
        for event in history
    )

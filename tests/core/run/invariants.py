"""The invariants of every history, each checked on one walk."""

import itertools

import pytest

from runtime.core.documents import codec, continuations
from runtime.core.run import events
from runtime.core.run.continuation import FrameState, Phase
from runtime.core.run.gates import is_blocked_by_gate
from runtime.core.run.planning import CancelRun, CheckCall, Command, plan
from runtime.core.run.reducer import Entry, evolve, fold
from runtime.core.values.enums import SETTLED, CallState
from runtime.core.values.errors import CoreError
from runtime.core.values.verdicts import STARTS_CALL
from tests.core.run.events import AT
from tests.core.run.walks import Walk


def replay_is_the_live_state(walk: Walk, every: int = 7) -> None:
    """However the history is cut."""
    for cut in range(0, len(walk.history), every):
        base = continuations.decode_continuation(
            continuations.encode_continuation(walk.states[cut])
        )
        assert fold(base, walk.history[cut:]) == walk.now


def states_survive_their_json(walk: Walk, every: int = 1) -> None:
    for state in walk.states[::every]:
        assert continuations.decode_continuation(continuations.encode_continuation(state)) == state


def the_entry_survives_its_json(walk: Walk) -> None:
    entry = Entry(at=AT, events=tuple(walk.history))
    assert codec.decode_entry(codec.encode_entry(entry)) == entry
    assert codec.encode_entry(entry).isascii()


def a_live_run_is_never_stuck(walk: Walk) -> None:
    for now in walk.states[1:]:
        if not now.ended:
            states = {call.state for frame in now.frames.values() for call in frame.calls}
            works = plan(now) or CallState.STARTED in states
            assert works or now.pending or now.waits() or now.is_paused


def a_write_is_started_once_per_approval(walk: Walk) -> int:
    starts = 0
    allowed = {
        event.gate
        for event in walk.history
        if isinstance(event, events.GateDecided) and event.verdict in STARTS_CALL
    }
    in_doubt: set[tuple[str, str]] = set()
    for before, event in zip(walk.states, walk.history, strict=False):
        if isinstance(event, events.OutcomeUnknown):
            in_doubt.add((event.frame, event.call))
        if isinstance(event, events.ToolStarted):
            starts += 1
            call = before.call(event.frame, event.call)
            assert call.terms is not None
            assert call.gate is None or call.gate in allowed
            # After an unknown outcome only a person's decision starts a call again.
            assert (event.frame, event.call) not in in_doubt or call.gate is not None
    return starts


def nothing_starts_after_a_cancellation(walk: Walk) -> int:
    happened = [
        event
        for before, event in zip(walk.states, walk.history, strict=False)
        if before.phase is Phase.CANCELLING
    ]
    assert not any(isinstance(event, events.ToolStarted | events.FrameOpened) for event in happened)
    return len(happened)


def results_are_in_proposal_order(walk: Walk) -> int:
    seen = 0
    for frame in walk.states[-2].frames.values():
        for said, heard in itertools.pairwise(frame.messages):
            if heard["role"] == "results":
                assert [result["call"] for result in heard["results"]] == said["calls"]
                seen += 1
    return seen


def a_frame_that_does_not_act_has_no_open_call(walk: Walk) -> int:
    over = 0
    for now in walk.states:
        for frame in now.frames.values():
            if frame.state is not FrameState.ACTING:
                over += bool(frame.list_turn_calls())
                assert {call.state for call in frame.list_turn_calls()} <= SETTLED
                assert all(call.until is None for call in frame.list_turn_calls())
    return over


def a_paused_run_rests_and_goes_on_where_it_was(walk: Walk) -> int:
    pauses = 0
    for before, event in zip(walk.states, walk.history, strict=False):
        if before.is_paused:
            assert plan(before) == ()
            assert before.waits() == ()
            assert not isinstance(event, events.ToolStarted | events.FrameOpened)
        if isinstance(event, events.Paused):
            pauses += 1
            assert evolve(evolve(before, event), events.Resumed(by="ada")) == before
    return pauses


def so_many_calls_are_open_at_once_and_the_next_follow_in_order(walk: Walk) -> int:
    held = 0
    for now in walk.states:
        for frame in now.frames.values():
            calls = frame.open_calls() if frame.at_once else ()
            if not calls:
                continue
            waiting = [call.id for call in calls if call.state is CallState.PROPOSED]
            places = frame.at_once - sum(
                call.state not in (CallState.PROPOSED, *SETTLED) for call in calls
            )
            assert places >= 0
            planned = plan(now)
            checks = [one for one in planned if isinstance(one, CheckCall)]
            begin = [one.call for one in checks if one.frame == frame.id]
            stops = now.is_paused or now.phase is not Phase.STARTED or _is_end(planned)
            stops = stops or is_blocked_by_gate(now, frame.id)
            assert begin == ([] if stops else waiting[:places])
            held += len(waiting) > places
    return held


def _is_end(planned: tuple[Command, ...]) -> bool:
    return any(isinstance(command, CancelRun) for command in planned)


def no_answer_is_the_last_before_everything_was_heard(walk: Walk) -> int:
    heard = 0
    for before, now in itertools.pairwise(walk.states):
        root = now.root
        if root is not None and root.state is FrameState.ANSWERED:
            assert now.unheard == ()
        heard += max(0, len(before.unheard) - len(now.unheard))
    return heard


def an_ended_run_takes_no_event_and_plans_nothing(walk: Walk) -> None:
    """Check all but the events with which an exported run continues elsewhere, and a failed one after a retry."""
    continues = {Phase.EXPORTED: events.Imported, Phase.FAILED: events.Retried}
    if walk.now.ended:
        assert plan(walk.now) == ()
        for event in walk.history:
            if type(event) is not continues.get(walk.now.phase):
                with pytest.raises(CoreError):
                    evolve(walk.now, event)

"""Compaction: when it is due, its remainder, and that it changes no other frame."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from runtime.core.run import frames
from runtime.core.run.continuation import MAX_SAME_REPLIES, Continuation, Frame, FrameState
from runtime.core.run.events import (
    CallAdmitted,
    Compacted,
    Event,
    MessageReceived,
    Proposal,
    ToolFailed,
    ToolReturned,
    ToolStarted,
    WaitEnded,
    WaitStarted,
)
from runtime.core.run.frames import count_repeats, is_stuck
from runtime.core.run.planning import CallModel, plan
from runtime.core.run.reducer import evolve, fold, make_initial_state
from runtime.core.values.call_options import CompactionOptions
from runtime.core.values.errors import IllegalTransition
from tests.core.run.events import AT, after, begun, frame_of, opened, options, replied

FOUR = CompactionOptions(messages=4)


def turn(number: int, result: Any = "done") -> list[Event]:
    call = f"c{number}.0"
    return [
        replied("t", usage={"tokens": 1}),
        CallAdmitted(frame="0", call=call, terms=options()),
        ToolStarted(frame="0", call=call, attempt=1, at=AT),
        ToolReturned(frame="0", call=call, attempt=1, result=result),
    ]


def compacted(turns: int, terms: CompactionOptions | None, result: Any = "done") -> Continuation:
    start: list[Event] = [begun(input={"do": 1}), opened(input={"do": 1}, compaction=terms)]
    return fold(
        make_initial_state(UUID(int=1)),
        start + [e for n in range(1, turns + 1) for e in turn(n, result)],
    )


def summed(until: int, text: str = "two things were done") -> Compacted:
    return Compacted(frame="0", until=until, summary=text, by="model", usage={"tokens": 7})


@pytest.mark.parametrize(
    ("turns", "terms", "due"),
    [
        (5, None, False),
        (1, FOUR, False),
        (2, FOUR, True),
        (2, CompactionOptions(messages=5), False),
        (3, CompactionOptions(bytes=1_000), False),
        (1, CompactionOptions(messages=1), False),  # there is nothing to leave out
        (0, CompactionOptions(messages=0), False),
    ],
)
def test_it_is_due_beyond_a_size(turns: int, terms: CompactionOptions | None, due: bool) -> None:
    assert plan(compacted(turns, terms)) == (CallModel(frame="0", summary=due),)


@pytest.mark.parametrize(("less", "due"), [(0, False), (1, True)])
def test_bytes_are_those_of_messages_arguments_and_blobs(less: int, due: bool) -> None:
    frame = compacted(3, None).frame("0")
    frame.messages[-1]["results"][0]["stored"] = {"digest": "sha256:x", "size": 2_000}
    parts = (frame.messages, [call.args for call in frame.calls])
    exactly = 2_000 + sum(len(json.dumps(part, separators=(",", ":"))) for part in parts)
    terms = CompactionOptions(bytes=exactly - less)
    assert frames.needs_compaction(replace(frame, compaction=terms)) is due


def test_compaction_keeps_input_summary_and_last_turn() -> None:
    other = frame_of("0.c1.0", state=FrameState.ACTING)
    before = compacted(3, FOUR).with_frame(other)
    root = before.frame("0")
    now = fold(before.with_frame(replace(root, attempt=4, failures=3)), [summed(5)])
    frame = now.frame("0")
    assert frame.messages == (
        root.messages[0],
        {"role": "summary", "content": "two things were done", "of": 4},
        *root.messages[5:],
    )
    assert [call.id for call in frame.calls] == ["c3.0"]
    assert (frame.turn, frame.state) == (3, FrameState.ASKING)
    assert (frame.attempt, frame.failures) == (1, 0)
    assert (now.frame("0.c1.0"), now.usage) == (other, {"tokens": 10})
    assert not frames.needs_compaction(frame)  # or it would be summed up for ever
    once = fold(now, turn(4))
    assert frames.needs_compaction(once.frame("0"))
    twice = fold(once, [summed(4, "three things were done")]).frame("0")
    assert [m["role"] for m in twice.messages] == ["input", "summary", "model", "results"]
    assert twice.messages[1]["content"] == "three things were done"
    assert [call.id for call in twice.calls] == ["c4.0"]


def test_a_single_message_may_give_way() -> None:
    now = compacted(1, None)
    given, *rest = now.frame("0").messages
    said = {"role": "message", "by": "ada", "text": "mind the gap"}
    now = now.with_frame(replace(now.frame("0"), messages=(given, said, *rest)))
    now = fold(now, [replace(summed(2), usage={"other": 7})])
    summary = {"role": "summary", "content": "two things were done", "of": 1}
    assert now.frame("0").messages == (given, summary, *rest)
    assert now.usage == {"tokens": 1, "other": 7}


@pytest.mark.parametrize(("turns", "until"), [(3, 0), (3, 3), (3, 4), (3, 6), (1, 1)])
def test_only_at_the_last_reply(turns: int, until: int) -> None:
    assert frames.cut_point(compacted(0, FOUR).frame("0")) == 0
    with pytest.raises(IllegalTransition):
        fold(compacted(turns, FOUR), [summed(until)])


# Repetition


Turn = Callable[[int], list[Event]]


def frame_after(turn: Turn) -> Frame:
    """A frame after three turns."""
    return after(*(event for number in (1, 2, 3) for event in turn(number))).frame("0")


def called(number: int, end: Event, **fields: Any) -> list[Event]:
    call: Any = {"frame": "0", "call": f"c{number}.0"}
    return [
        replied("t", **fields),
        CallAdmitted(**call, terms=options()),
        ToolStarted(**call, attempt=1, at=AT),
        end,
    ]


def returned(number: int, result: Any = "sent") -> ToolReturned:
    return ToolReturned(frame="0", call=f"c{number}.0", attempt=1, result=result)


def failed(number: int) -> ToolFailed:
    return ToolFailed(
        frame="0", call=f"c{number}.0", attempt=1, error=f"request {number}: not found"
    )


def waited(number: int) -> list[Event]:
    call: Any = {"frame": "0", "call": f"c{number}.0"}
    return [
        replied("wait_for"),
        CallAdmitted(**call, terms=options(waits="event")),
        WaitStarted(**call, until=AT, event="tick", match={}),
        WaitEnded(**call, outcome="arrived", result={"event": "tick"}),
    ]


@pytest.mark.parametrize(
    ("turn", "repeats"),
    [
        (lambda n: called(n, returned(n)), 3),
        (lambda n: called(n, returned(n), text=f"Attempt {n}.", reply={"id": n}), 3),
        (lambda n: called(n, failed(n)), 3),  # each error has a number of its own
        (lambda n: called(n, returned(n, result=n)), 1),  # it polls, and sees something new
        (lambda n: called(n, returned(n), calls=(Proposal(tool="t", args={"n": n}),)), 1),
        (lambda n: called(n, failed(n) if n == 2 else returned(n)), 1),
        (waited, 0),
    ],
)
def test_the_same_calls_with_the_same_results_repeat(turn: Turn, repeats: int) -> None:
    assert count_repeats(frame_after(turn)) == repeats


def test_a_message_of_a_person_is_another_state() -> None:
    turns = [event for n in range(1, MAX_SAME_REPLIES + 1) for event in called(n, returned(n))]
    stuck = after(*turns)
    assert is_stuck(stuck, stuck.frame("0"))
    informed = evolve(stuck, MessageReceived(by="ada", text="Stop."))
    assert not is_stuck(informed, informed.frame("0"))
    number = MAX_SAME_REPLIES + 1
    again = fold(informed, called(number, returned(number), heard=1))
    assert count_repeats(again.frame("0")) == 1

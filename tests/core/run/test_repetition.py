"""Which turns of a frame count as the same one again."""

from collections.abc import Callable
from typing import Any

import pytest

from runtime.core.run.continuation import MAX_SAME_REPLIES, Frame
from runtime.core.run.events import (
    CallAdmitted,
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
from runtime.core.run.reducer import evolve, fold
from tests.core.run.events import AT, after, options, replied

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

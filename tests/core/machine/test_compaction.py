"""Compaction: when it is due, its remainder, and that it changes no other frame."""

import json
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from runtime.core.call_options import CompactionOptions
from runtime.core.commands import CallModel
from runtime.core.continuation import Continuation, Frame, FrameState
from runtime.core.errors import IllegalTransition
from runtime.core.events import (
    CallAdmitted,
    Compacted,
    Event,
    ModelReplied,
    Proposal,
    ToolReturned,
    ToolStarted,
)
from runtime.core.machine import compaction
from runtime.core.machine.planning import plan
from runtime.core.machine.replay import fold, initial
from tests.core.machine.events import begun, opened, options
from tests.core.machine.walks import AT


def turn(number: int, result: Any = "done") -> list[Event]:
    call = f"c{number}.0"
    calls = (Proposal(tool="t", args={"n": number}),)
    return [
        ModelReplied(frame="0", reply={"n": number}, text="", calls=calls, usage={"tokens": 1}),
        CallAdmitted(frame="0", call=call, terms=options()),
        ToolStarted(frame="0", call=call, attempt=1, at=AT),
        ToolReturned(frame="0", call=call, attempt=1, result=result),
    ]


def after(turns: int, terms: CompactionOptions | None, result: Any = "done") -> Continuation:
    start: list[Event] = [begun(input={"do": 1}), opened(input={"do": 1}, compaction=terms)]
    return fold(
        initial(UUID(int=1)), start + [e for n in range(1, turns + 1) for e in turn(n, result)]
    )


def summed(until: int, text: str = "two things were done") -> Compacted:
    return Compacted(frame="0", until=until, summary=text, by="model", usage={"tokens": 7})


@pytest.mark.parametrize(
    ("turns", "terms", "due"),
    [
        (5, None, False),
        (1, CompactionOptions(messages=4), False),
        (2, CompactionOptions(messages=4), True),
        (2, CompactionOptions(messages=5), False),
        (3, CompactionOptions(bytes=1_000), False),
        (1, CompactionOptions(messages=1), False),  # there is nothing to leave out
    ],
)
def test_it_is_due_beyond_the_threshold(
    turns: int, terms: CompactionOptions | None, due: bool
) -> None:
    assert plan(after(turns, terms)) == (CallModel(frame="0", summary=due),)


def test_bytes_of_blobs_count_too() -> None:
    assert compaction.is_due(after(3, CompactionOptions(bytes=1_000), "x" * 400).frame("0"))
    small = after(3, CompactionOptions(bytes=1_000)).frame("0")
    results: dict[str, Any] = {"call": "c3.0", "tool": "t", "outcome": "returned", "content": None}
    results["stored"] = {"digest": "sha256:x", "size": 2_000}
    last = {"role": "results", "results": [results]}
    assert compaction.is_due(replace(small, messages=(*small.messages[:-1], last)))


@pytest.mark.parametrize(("less", "due"), [(0, False), (1, True)])
def test_as_many_bytes_as_may_be_are_not_too_many(less: int, due: bool) -> None:
    frame = after(3, None).frame("0")
    parts = (frame.messages, [call.args for call in frame.calls])
    exactly = sum(len(json.dumps(part, separators=(",", ":"))) for part in parts)
    terms = CompactionOptions(bytes=exactly - less)
    assert compaction.is_due(replace(frame, compaction=terms)) is due


def test_without_a_reply_nothing_gives_way() -> None:
    assert compaction.cut_point(after(0, None).frame("0")) == 0


def test_compaction_keeps_input_summary_and_last_turn() -> None:
    before = after(3, CompactionOptions(messages=4))
    frame = fold(before, [summed(5)]).frame("0")
    assert frame.messages == (
        before.frame("0").messages[0],
        {"role": "summary", "content": "two things were done", "of": 4},
        *before.frame("0").messages[5:],
    )
    assert [call.id for call in frame.calls] == ["c3.0"]
    assert (frame.turn, frame.state) == (3, FrameState.ASKING)
    assert not compaction.is_due(frame)  # or it would be summed up for ever


def test_ids_go_on_and_a_summary_is_summed_up_with_the_rest() -> None:
    once = fold(after(3, CompactionOptions(messages=4)), [summed(5), *turn(4)])
    assert compaction.is_due(once.frame("0"))
    twice = fold(once, [summed(4, "three things were done")]).frame("0")
    assert [m["role"] for m in twice.messages] == ["input", "summary", "model", "results"]
    assert twice.messages[1]["content"] == "three things were done"
    assert [call.id for call in twice.calls] == ["c4.0"]


def test_the_cost_of_a_summary_is_counted() -> None:
    before = after(3, CompactionOptions(messages=4))
    assert fold(before, [summed(5)]).usage == {"tokens": 10}
    assert fold(before, [replace(summed(5), usage={"other": 7})]).usage == {"tokens": 3, "other": 7}


def test_attempts_at_a_summary_are_counted_separately() -> None:
    now = after(3, CompactionOptions(messages=4))
    now = now.with_frame(replace(now.frame("0"), attempt=4, failures=3))
    frame = fold(now, [summed(5)]).frame("0")
    assert (frame.attempt, frame.failures) == (1, 0)


def test_a_single_message_may_give_way() -> None:
    now = after(1, None)
    given, *rest = now.frame("0").messages
    said = {"role": "message", "by": "ada", "text": "mind the gap"}
    now = now.with_frame(replace(now.frame("0"), messages=(given, said, *rest)))
    frame = fold(now, [summed(2)]).frame("0")
    summary = {"role": "summary", "content": "two things were done", "of": 1}
    assert frame.messages == (given, summary, *rest)


@pytest.mark.parametrize("until", [0, 1, 2, 3, 4, 6, 7])
def test_only_at_the_last_reply(until: int) -> None:
    with pytest.raises(IllegalTransition):
        fold(after(3, CompactionOptions(messages=4)), [summed(until)])


def test_never_with_an_open_call() -> None:
    events = turn(3)[:3]
    now = fold(after(2, CompactionOptions(messages=4)), events)
    with pytest.raises(IllegalTransition):
        fold(now, [summed(5)])


def test_another_frame_is_left_as_it_is() -> None:
    now = after(3, CompactionOptions(messages=4))
    other = Frame(id="0.c1.0", agent="b", fingerprint="f", prompt="p", state=FrameState.ACTING)
    assert fold(now.with_frame(other), [summed(5)]).frame("0.c1.0") == other

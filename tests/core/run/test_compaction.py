"""Compaction: when it is due, its remainder, and that it changes no other frame."""

import json
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from runtime.core.run import frames
from runtime.core.run.continuation import Continuation, FrameState
from runtime.core.run.events import CallAdmitted, Compacted, Event, ToolReturned, ToolStarted
from runtime.core.run.planning import CallModel, plan
from runtime.core.run.reducer import fold, initial
from runtime.core.values.call_options import CompactionOptions
from runtime.core.values.errors import IllegalTransition
from tests.core.run.events import AT, begun, frame_of, opened, options, replied

FOUR = CompactionOptions(messages=4)


def turn(number: int, result: Any = "done") -> list[Event]:
    call = f"c{number}.0"
    return [
        replied("t", usage={"tokens": 1}),
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
        (1, FOUR, False),
        (2, FOUR, True),
        (2, CompactionOptions(messages=5), False),
        (3, CompactionOptions(bytes=1_000), False),
        (1, CompactionOptions(messages=1), False),  # there is nothing to leave out
        (0, CompactionOptions(messages=0), False),
    ],
)
def test_it_is_due_beyond_a_size(turns: int, terms: CompactionOptions | None, due: bool) -> None:
    assert plan(after(turns, terms)) == (CallModel(frame="0", summary=due),)


@pytest.mark.parametrize(("less", "due"), [(0, False), (1, True)])
def test_bytes_are_those_of_messages_arguments_and_blobs(less: int, due: bool) -> None:
    frame = after(3, None).frame("0")
    frame.messages[-1]["results"][0]["stored"] = {"digest": "sha256:x", "size": 2_000}
    parts = (frame.messages, [call.args for call in frame.calls])
    exactly = 2_000 + sum(len(json.dumps(part, separators=(",", ":"))) for part in parts)
    terms = CompactionOptions(bytes=exactly - less)
    assert frames.compaction_is_due(replace(frame, compaction=terms)) is due


def test_compaction_keeps_input_summary_and_last_turn() -> None:
    other = frame_of("0.c1.0", state=FrameState.ACTING)
    before = after(3, FOUR).with_frame(other)
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
    assert not frames.compaction_is_due(frame)  # or it would be summed up for ever
    once = fold(now, turn(4))
    assert frames.compaction_is_due(once.frame("0"))
    twice = fold(once, [summed(4, "three things were done")]).frame("0")
    assert [m["role"] for m in twice.messages] == ["input", "summary", "model", "results"]
    assert twice.messages[1]["content"] == "three things were done"
    assert [call.id for call in twice.calls] == ["c4.0"]


def test_a_single_message_may_give_way() -> None:
    now = after(1, None)
    given, *rest = now.frame("0").messages
    said = {"role": "message", "by": "ada", "text": "mind the gap"}
    now = now.with_frame(replace(now.frame("0"), messages=(given, said, *rest)))
    now = fold(now, [replace(summed(2), usage={"other": 7})])
    summary = {"role": "summary", "content": "two things were done", "of": 1}
    assert now.frame("0").messages == (given, summary, *rest)
    assert now.usage == {"tokens": 1, "other": 7}


@pytest.mark.parametrize(("turns", "until"), [(3, 0), (3, 3), (3, 4), (3, 6), (1, 1)])
def test_only_at_the_last_reply(turns: int, until: int) -> None:
    assert frames.cut_point(after(0, FOUR).frame("0")) == 0
    with pytest.raises(IllegalTransition):
        fold(after(turns, FOUR), [summed(until)])

"""The plan of a frame: its changes, their order within a turn, and that nothing loses it."""

from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest

from runtime.core.documents import continuations
from runtime.core.run import frames
from runtime.core.run.continuation import Continuation, PlanItem
from runtime.core.run.events import (
    CallAdmitted,
    Compacted,
    Event,
    Forked,
    ToolReturned,
    ToolStarted,
)
from runtime.core.run.forks import fork_document
from runtime.core.run.planning import StartTool, plan
from runtime.core.run.reducer import fold, make_initial_state
from runtime.core.values.enums import CallState
from runtime.core.values.limits import MAX_PLAN_ITEM, MAX_PLAN_ITEMS
from tests.core.run.events import AT, begun, opened, options, replied

TERMS = options(plan=True)
TWO = frames.change_plan((), write=["look", "book"])
MOST = ["x" * MAX_PLAN_ITEM] * MAX_PLAN_ITEMS


def shown(plan: frames.Plan) -> str:
    return ", ".join(f"{one.text} {one.state}" for one in plan)


@pytest.mark.parametrize(
    ("changes", "then"),
    [
        ({"write": [" one\n day ", "b"]}, "one day open, b open"),
        ({"add": ["pay"], "done": [1]}, "look done, book open, pay open"),
        ({"done": [1, 1, 2]}, "look done, book done"),
        ({"doing": 2}, "look open, book doing"),
        ({"write": ["a"], "add": ["b"], "done": [2], "doing": 1}, "a doing, b done"),
        ({"write": []}, ""),
    ],
)
def test_a_plan_is_written_ticked_and_added_to(changes: dict[str, Any], then: str) -> None:
    assert shown(frames.change_plan(TWO, **changes)) == then


def test_one_item_is_at_work() -> None:
    first = frames.change_plan(TWO, doing=1)
    assert [
        frames.find_current_number(one) for one in (TWO, frames.change_plan(first, doing=2))
    ] == [
        1,
        2,
    ]
    assert shown(frames.change_plan(first, doing=2)) == "look open, book doing"
    assert frames.find_current_item(frames.change_plan(TWO, done=[1])) == {
        "item": "book",
        "number": 2,
        "of": 2,
    }
    assert frames.find_current_item(frames.change_plan(TWO, done=[1, 2])) is None


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, "give at least one of write, add, done and doing"),
        ({"done": [3]}, "done: there is no item 3; the plan has 2"),
        ({"doing": 0}, "doing: there is no item 0"),
        ({"add": MOST}, "at most 50 items, and this has 52"),
        ({"write": ["x" * (MAX_PLAN_ITEM + 1)]}, "1 to 200 characters, and this has 201: xxx"),
        ({"add": [" \n "]}, "1 to 200 characters, and this has 0"),
    ],
)
def test_a_change_that_does_not_fit_names_the_limit(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        frames.change_plan(TWO, **changes)


def test_a_plan_as_large_as_may_be_fits_an_event() -> None:
    whole = frames.change_plan((), write=MOST)
    assert frames.read_plan(frames.make_plan_result(whole)) == whole
    assert [frames.read_plan(one) for one in (None, {}, {"plan": [{"text": 1}]})] == [None] * 3


def admitted(call: str) -> CallAdmitted:
    return CallAdmitted(frame="0", call=call, terms=TERMS)


def kept(call: str, plan: frames.Plan) -> list[Event]:
    result = frames.make_plan_result(plan)
    return [
        ToolStarted(frame="0", call=call, attempt=1, at=AT),
        ToolReturned(frame="0", call=call, attempt=1, result=result),
    ]


def after(*events: Event) -> Continuation:
    start: list[Event] = [begun(), opened(), replied("plan", "plan")]
    return fold(
        make_initial_state(UUID(int=1)), [*start, admitted("c1.0"), admitted("c1.1"), *events]
    )


def test_the_calls_of_a_turn_change_the_plan_one_after_the_other() -> None:
    first, second = (StartTool(frame="0", call=f"c1.{n}", attempt=1) for n in (0, 1))
    assert plan(after()) == (first,)
    assert plan(after(*kept("c1.0", TWO)[:1])) == ()
    assert plan(after(*kept("c1.0", TWO))) == (second,)


def test_only_the_result_of_such_a_call_is_a_plan() -> None:
    now = after(*kept("c1.0", TWO))
    assert now.frame("0").todo == TWO
    call = now.call("0", "c1.0")
    for other in (replace(call, terms=options()), replace(call, terms=None)):
        assert frames.keep_plan(now.frame("0"), other).todo == TWO
        assert frames.keep_plan(replace(now.frame("0"), todo=()), other).todo == ()


def test_compaction_forks_and_documents_keep_the_plan() -> None:
    last = frames.change_plan(TWO, done=[1])
    turns: list[Event] = [replied("t"), CallAdmitted(frame="0", call="c2.0", terms=options())]
    now = after(*kept("c1.0", TWO), *kept("c1.1", last), *turns, *kept("c2.0", ()))
    assert (now.frame("0").todo, now.call("0", "c2.0").state) == (last, CallState.RETURNED)
    short = fold(now, [Compacted(frame="0", until=3, summary="s", by="author", usage={})])
    assert [one.id for one in short.frame("0").calls] == ["c2.0"]
    fork = Forked(of=now.run, position=9, by="eve", state=fork_document(short))
    copy = fold(make_initial_state(uuid4()), [begun(requester="eve"), fork])
    for state in (short, copy):
        assert state.frame("0").todo == (PlanItem(text="look", state="done"), last[1])
        text = continuations.encode_continuation(state)
        assert continuations.decode_continuation(text).frame("0").todo == last

"""Messages of people in the core: kept until a model was given them, and no answer is the last one before that."""

from dataclasses import replace
from uuid import UUID

import pytest

from runtime.core.commands import CallModel, EndRun
from runtime.core.continuation import Continuation, FrameState, Phase, Undelivered
from runtime.core.errors import IllegalTransition
from runtime.core.events import (
    CallAdmitted,
    Cancelling,
    Completed,
    Exported,
    Forked,
    Imported,
    MessageReceived,
    Paused,
    ToolReturned,
    ToolStarted,
)
from runtime.core.machine.forks import forked
from runtime.core.machine.messages import undelivered_to
from runtime.core.machine.planning import plan
from runtime.core.machine.replay import fold, initial
from tests.core.machine.events import after, begun, opened, options, replied
from tests.core.machine.walks import AT

HELLO = MessageReceived(by="ada", text="hello")
THERE = MessageReceived(by="bea", text="there")


def test_a_result_missing_from_its_reply_stays_in_the_message() -> None:
    typed = replace(replied(), output={"euros": 9})
    for kept in (True, False):
        now = after(HELLO, replace(typed, output_kept=kept))
        (said,) = [one for one in now.frame("0").messages if one["role"] == "model"]
        assert said.get("output") == ({"euros": 9} if kept else None)


def _roles(now: Continuation) -> list[str]:
    return [message["role"] for message in now.frames["0"].messages]


def test_a_message_follows_the_results_of_the_turn() -> None:
    terms = options()
    acting = after(
        replied("t"),
        CallAdmitted(frame="0", call="c1.0", terms=terms),
        ToolStarted(frame="0", call="c1.0", attempt=1, at=AT),
        HELLO,
    )
    assert _roles(acting) == ["input", "model"]
    settled = fold(acting, [ToolReturned(frame="0", call="c1.0", attempt=1, result=1)])
    assert undelivered_to(settled, "0") == ({"role": "message", "by": "ada", "content": "hello"},)
    heard = fold(settled, [replied(heard=1)])
    assert _roles(heard) == ["input", "model", "results", "message", "model"]
    assert (heard.unheard, heard.frames["0"].state) == ((), FrameState.ANSWERED)


def test_an_answer_that_was_given_without_it_is_not_the_last_one() -> None:
    now = after(HELLO, THERE, replied(heard=1))
    assert (now.frames["0"].state, now.frames["0"].outcome) == (FrameState.ASKING, None)
    assert now.unheard == (Undelivered(by="bea", text="there"),)
    assert plan(now) == (CallModel(frame="0"),)
    now = fold(now, [replied(heard=1)])
    assert _roles(now) == ["input", "message", "model", "message", "model"]
    assert plan(now) == (EndRun(),)


def test_a_root_that_has_answered_is_asked_again() -> None:
    now = after(replied(), HELLO)
    assert (now.frames["0"].state, now.frames["0"].outcome) == (FrameState.ASKING, None)
    with pytest.raises(IllegalTransition):
        fold(now, [Completed(output="done")])


def test_a_message_comes_before_there_is_a_root() -> None:
    start = begun()
    now = fold(initial(UUID(int=7)), (start, HELLO, opened()))
    assert undelivered_to(now, "0") == ({"role": "message", "by": "ada", "content": "hello"},)


def test_only_the_root_hears() -> None:
    terms = options(delegate="b")
    now = after(
        replied("b"),
        CallAdmitted(frame="0", call="c1.0", terms=terms),
        opened("0.c1.0", parent="0", call="c1.0"),
        HELLO,
    )
    assert undelivered_to(now, "0.c1.0") == ()
    with pytest.raises(IllegalTransition):
        fold(now, [replied(frame="0.c1.0", heard=1)])
    assert fold(now, [replied(frame="0.c1.0")]).frames["0.c1.0"].state is FrameState.ANSWERED


@pytest.mark.parametrize("heard", [-1, 2])
def test_no_more_is_heard_than_was_said(heard: int) -> None:
    with pytest.raises(IllegalTransition):
        after(HELLO, replied(heard=heard))


def test_a_run_that_is_ended_takes_none() -> None:
    with pytest.raises(IllegalTransition):
        after(Cancelling(by="ada", reason="enough"), HELLO)


def test_a_pause_keeps_it() -> None:
    now = after(Paused(by="ada", reason=""), HELLO)
    assert (plan(now), len(now.unheard)) == ((), 1)


def test_a_fork_and_a_run_from_elsewhere_bring_it_along() -> None:
    now = after(HELLO)
    start = begun(requester="eve")
    copy = Forked(of=UUID(int=7), position=2, by="eve", state=forked(now))
    assert fold(initial(UUID(int=8)), (start, copy)).unheard == now.unheard
    imported = Imported(by="eve", manifest="{}", key="k", signature="00")
    there = fold(now, [Exported(by="ada"), imported])
    assert (there.unheard, there.phase) == (now.unheard, Phase.STARTED)

"""Messages of people in the core: kept until a model was given them, and no answer is the last one before that."""

from dataclasses import replace
from uuid import UUID

import pytest

from runtime.core.commands import CallModel, EndRun
from runtime.core.continuation import FrameState, Undelivered
from runtime.core.errors import IllegalTransition
from runtime.core.events import CallAdmitted, MessageReceived
from runtime.core.machine.messages import undelivered_to
from runtime.core.machine.planning import plan
from runtime.core.machine.replay import fold, initial
from tests.core.machine.events import after, begun, opened, options, replied

HELLO = MessageReceived(by="ada", text="hello")
THERE = MessageReceived(by="bea", text="there")


def test_a_result_missing_from_its_reply_stays_in_the_message() -> None:
    typed = replace(replied(), output={"euros": 9})
    for kept in (True, False):
        now = after(HELLO, replace(typed, output_kept=kept))
        (said,) = [one for one in now.frame("0").messages if one["role"] == "model"]
        assert said.get("output") == ({"euros": 9} if kept else None)


def test_an_answer_that_was_given_without_it_is_not_the_last_one() -> None:
    now = fold(initial(UUID(int=7)), (begun(), HELLO, opened()))
    assert undelivered_to(now, "0") == ({"role": "message", "by": "ada", "content": "hello"},)
    now = fold(now, [THERE, replied(heard=1)])
    assert (now.frames["0"].state, now.frames["0"].outcome) == (FrameState.ASKING, None)
    assert now.unheard == (Undelivered(by="bea", text="there"),)
    assert plan(now) == (CallModel(frame="0"),)
    now = fold(now, [replied(heard=1)])
    roles = [message["role"] for message in now.frames["0"].messages]
    assert roles == ["input", "message", "model", "message", "model"]
    assert plan(now) == (EndRun(),)


def test_only_the_root_hears_and_no_more_than_was_said() -> None:
    child = opened("0.c1.0")
    admitted = CallAdmitted(frame="0", call="c1.0", terms=options(delegate="b"))
    now = after(replied("b"), admitted, child, HELLO)
    assert undelivered_to(now, "0.c1.0") == ()
    for event in (replied(frame="0.c1.0", heard=1), replied(heard=-1), replied(heard=2)):
        with pytest.raises(IllegalTransition, match="unheard"):
            fold(after(HELLO) if event.frame == "0" else now, [event])
    assert fold(now, [replied(frame="0.c1.0")]).frames["0.c1.0"].state is FrameState.ANSWERED

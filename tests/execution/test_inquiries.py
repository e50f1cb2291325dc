"""An inquiry to an agent while its worker dies, or while people decide: answered once, or not at all."""

from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest

from runtime.control.interventions import ask_inquiry as ask_agent
from runtime.control.verification import verify
from runtime.core.run.reducer import make_initial_state
from runtime.core.values.enums import FailureCause, Verdict
from runtime.execution.effects.running import no_abort
from runtime.models import Signal
from runtime.ports.effects import Abort, ModelFailure, ModelRequest, Outcome, ToolResult
from runtime.reads.journal import fold_last_state, read
from tests.support.engine import MakeBench, Rig, lose, pause, resume, types
from tests.support.fake_ports import FakeTool, ask, say, turns
from tests.support.people import until
from tests.support.threads import WITHIN, Hold, holding

DONE = ToolResult(value=1)
USED = {"input_tokens": 7, "output_tokens": 2}
PAID = replace(say("Because."), usage=USED, cost=5)


@pytest.fixture
def desk(rig: MakeBench) -> tuple[Rig, Hold]:
    """An agent with a gated call; its model holds while it answers an inquiry."""
    work, hold = turns(ask(("t", {})), say("done")), Hold(say("Because."))

    def model(request: ModelRequest) -> Outcome:
        return work(request) if request.inquiry is None else hold(request)

    return rig({"a": model}, t=FakeTool(gated=True)), hold


def asked(desk: Rig) -> UUID:
    run = desk.start("a")
    assert desk.advance(run).status == "suspended"
    [gate] = desk.open_gates(run)
    ask_agent(run=run, gate=gate.id, by="bea", text="Why?")
    return run


def test_a_lost_answer_is_given_again_and_recorded_once(desk: tuple[Rig, Hold]) -> None:
    worker, hold = desk
    run = asked(worker)
    with holding(worker, run, hold):
        assert types(run)[-1] == "QuestionAsked"
        lose(run)
    assert worker.advance(run).status == "suspended"
    assert types(run).count("QuestionAnswered") == 1
    assert len([one for one in worker.effects.models if one.inquiry]) == 2
    assert worker.answer(run).status == "completed"
    assert verify(run).is_consistent


def test_a_decision_during_the_answer_drops_it(
    desk: tuple[Rig, Hold], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run does not wait for a provider that takes its time to end the answer."""
    worker, hold = desk
    begin = worker.effects.start_model_call

    def start(request: ModelRequest, *more: Any) -> Abort:
        end = begin(request, *more)
        return end if request.inquiry is None else lambda: None

    monkeypatch.setattr(worker.effects, "start_model_call", start)
    run = asked(worker)
    with holding(worker, run, hold):
        worker.decide(worker.open_gates(run)[0].id, Verdict.APPROVE)
        worker.heartbeat.check_signals(run)
        until(lambda: "Completed" in types(run) or None, "the run to end")
    assert [kind for kind in types(run) if kind.startswith("Question")] == ["QuestionAsked"]
    assert verify(run).is_consistent


def test_an_answer_that_comes_after_the_decision_is_charged(
    rig: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The provider cannot be stopped any more, or has answered at the same moment."""
    work, answer, tool = turns(ask(("t", {})), say("done")), Hold(PAID), Hold(DONE)

    def model(request: ModelRequest) -> Outcome:
        return work(request) if request.inquiry is None else answer(request)

    worker = rig({"a": model}, t=FakeTool(gated=True, body=tool))
    start = worker.effects.start_model_call

    def start_unstoppable(*given: Any) -> Abort:
        start(*given)
        return no_abort

    monkeypatch.setattr(worker.effects, "start_model_call", start_unstoppable)
    run = asked(worker)
    with holding(worker, run, answer):
        worker.decide(worker.open_gates(run)[0].id, Verdict.APPROVE)
        worker.heartbeat.check_signals(run)
        assert tool.begun.wait(WITHIN)
        answer.go_on.set()
        until(lambda: "AnswerDropped" in types(run) or None, "the charge")
        tool.go_on.set()
        until(lambda: "Completed" in types(run) or None, "the run to end")
    now = fold_last_state(make_initial_state(run), read(run))
    assert (now.usage, now.spent.tokens, now.spent.micros) == (USED, 9, 5)
    assert verify(run).is_consistent


@pytest.mark.parametrize(
    "reply",
    [
        replace(say(" "), usage=USED, cost=5),
        ModelFailure(error="cut", cause=FailureCause.REPLY, usage=USED, cost=5),
    ],
    ids=["blank", "cut"],
)
def test_an_answer_that_cannot_be_used_is_charged(desk: tuple[Rig, Hold], reply: Outcome) -> None:
    worker, hold = desk
    hold.reply = reply
    hold.go_on.set()
    run = asked(worker)
    assert worker.advance(run).status == "suspended"
    assert types(run)[-2:] == ["QuestionFailed", "AnswerDropped"]
    assert fold_last_state(make_initial_state(run), read(run)).spent.micros == 5


def test_a_paused_run_answers_when_it_is_resumed(desk: tuple[Rig, Hold]) -> None:
    worker, hold = desk
    hold.go_on.set()
    run = asked(worker)
    pause(run)
    assert worker.advance(run).status == "paused"
    assert "QuestionAnswered" not in types(run)
    resume(run)
    assert worker.advance(run).status == "suspended"
    assert "QuestionAnswered" in types(run)


def test_a_question_about_a_closed_gate_changes_nothing(desk: tuple[Rig, Hold]) -> None:
    worker, _ = desk
    run = asked(worker)
    ask_agent(run=run, gate=uuid4(), by="bea", text="Why?")
    worker.decide(worker.open_gates(run)[0].id, Verdict.DENY, "no")
    Signal.objects.filter(run=run, kind="question").earliest("id")
    assert worker.advance(run).status == "completed"
    assert "QuestionAnswered" not in types(run)
    assert verify(run).is_consistent

"""`ask_person`: what the model gets, what an author may declare, and that no worker ever performs a question."""

from enum import StrEnum
from typing import Any

import pytest
from pydantic import BaseModel

from agents.errors import DefinitionError, ToolError
from agents.sdk import agent
from agents.sdk.spec import AgentSpec, ApprovalMode
from agents.testing import Turn, call, drive, say, script
from agents.tools.questions import MAX_QUESTION, ask_person
from runtime.core.values.enums import EffectClass, GateKind


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Wanted(BaseModel):
    what: str = ""


@script
def curious(turn: Turn) -> Any:
    said = turn.results[-1] if turn.results else None
    if said is None or (said.denied and len(turn.results) < 2):
        return call("ask_person", question="Which colour?")
    return say(f"{said.outcome}: {said.content}" if said.ok else said.why)


def asker(**given: Any) -> AgentSpec:
    return agent(
        name="asker",
        description="Asks.",
        instructions="Ask.",
        input=Wanted,
        model=curious,
        tools=[ask_person(Colour)],
        **given,
    )


def test_the_answer_reaches_the_agent_as_a_persons() -> None:
    run = drive(asker(), {})
    assert (run.gate.kind, run.gate.effect) == (GateKind.QUESTION, EffectClass.READ)
    assert run.gate.result_schema is not None
    assert run.gate.result_schema["enum"] == ["red", "blue"]
    assert run.gate.sentence == "The agent asks: Which colour?"
    assert run.answer("blue").output == "success: blue"
    assert run.calls == ()


def test_the_same_question_is_not_asked_again_after_it_was_declined() -> None:
    run = drive(asker(), {}).deny("It is not known.")
    assert run.output is not None
    assert "it is not asked again. The reason given: It is not known." in run.output


def test_an_unanswered_question_expires() -> None:
    run = drive(asker(), {}).expire()
    assert run.expire().output == "no person decided in time"


@pytest.mark.parametrize("verdict", ["approve", "edit"])
def test_a_question_has_no_other_verdict(verdict: str) -> None:
    run = drive(asker(), {})
    with pytest.raises(AssertionError, match="one can say deny, answer"):
        run.approve() if verdict == "approve" else run.edit({"question": "Which size?"})


@pytest.mark.parametrize("given", [{}, {"approvals": ApprovalMode.EVERY_CALL}])
def test_every_question_waits_for_a_person(given: dict[str, Any]) -> None:
    assert drive(asker(**given), {}).status == "suspended"
    with pytest.raises(DefinitionError, match="a question always waits for a person"):
        ask_person().with_settings(approval=False)
    with pytest.raises(ToolError, match="a person answers"):
        ask_person()("Which colour?")


def test_another_type_of_answer_is_another_version() -> None:
    other = agent(
        name="asker",
        description="Asks.",
        instructions="Ask.",
        input=Wanted,
        model=curious,
        tools=[ask_person(int)],
    )
    assert other.fingerprint != asker().fingerprint


@pytest.mark.parametrize("answer", [Any, object, None, object()])
def test_a_type_that_is_no_json_is_refused(answer: Any) -> None:
    with pytest.raises(DefinitionError, match="tool ask_person"):
        ask_person(answer)


@pytest.mark.parametrize("question", ["", "x" * (MAX_QUESTION + 1)])
def test_a_question_has_a_length(question: str) -> None:
    run = drive(asker(), {}, model=[call("ask_person", question=question), say("done")])
    assert (run.gates, run.output) == ((), "done")
    assert any("refused: arguments.question" in line for line in run.transcript)

"""An agent that holds its answer: a reviewer releases it, and no other text of its model is stored as it is."""

from typing import Any

import pytest
from pydantic import BaseModel

from agents.errors import DefinitionError
from agents.sdk import Answer, agent, tool
from agents.sdk.scripts import Turn, answer, script, together
from agents.testing import Flow, call, drive, say
from runtime.core.enums import GateKind, Risk
from runtime.core.events import ModelReplied
from runtime.keyring import held
from tests.support.specs import Question, spec_of

DRAFT, BETTER = "canary-draft: you get nothing", "You get 40 euros."
ASKED = {"text": "How much?"}


class Sum(BaseModel):
    euros: int


@tool(effect="read")
def look_up(text: str) -> str:
    """Looks up."""
    return text


def _drive(*model: Any, **options: Any) -> Flow:
    desk = agent(
        name="desk",
        description="Answers.",
        instructions="Answer.",
        input=Question,
        tools=[look_up],
        **{"answer": True, **options},
    )
    return drive(desk, ASKED, model=model)


def _heard(turn: Turn) -> Any:
    """Answer with what the model was told about its first answer."""
    told = turn.result("final_answer")
    assert told is not None
    return say(f"{told.outcome}: {told.why}")


def _args(flow: Flow) -> Any:
    """The arguments of the open gate as a reviewer reads them."""
    return held.opened_args(flow.gate.tool, flow.gate.args)


def _said(flow: Flow) -> str:
    """Everything that is stored of the run, with the state that it waits in."""
    return "\n".join([*flow.journal, repr(flow._worker.now), repr(flow._worker.shown)])


def test_an_answer_waits_and_is_stored_once_it_is_released() -> None:
    flow = _drive(say(DRAFT))
    assert (flow.status, flow.gate.kind, flow.gate.risk) == ("suspended", "approval", Risk.LOW)
    assert _args(flow) == {"answer": DRAFT}
    assert "canary" not in _said(flow)
    assert flow.approve().output == DRAFT


def test_a_denied_answer_is_written_again_and_stays_unread() -> None:
    flow = _drive(say(DRAFT), _heard).deny("too little")
    assert _args(flow) == {"answer": "denied: too little"}
    assert flow.approve().output == "denied: too little"
    assert "canary" not in _said(flow)
    flow = _drive(say(DRAFT), say(BETTER)).request_changes("give more")
    assert (flow.gate.revision, _args(flow)) == (2, {"answer": BETTER})


def test_a_reviewer_changes_the_answer_or_gives_another_one() -> None:
    flow = _drive(say(DRAFT)).edit({"answer": BETTER})
    assert flow.output == BETTER
    assert "canary" not in _said(flow)
    flow = _drive(say(DRAFT)).answer(BETTER)
    assert (flow.output, "canary" in _said(flow)) == (BETTER, False)
    long = "x" * 100_000
    assert _drive(say(long)).approve().output == long


def test_no_text_beside_the_answer_is_stored_as_it_is() -> None:
    flow = _drive(together(say(DRAFT), call("look_up", text="it")), say(DRAFT))
    [first, _] = [event for event in flow.events if isinstance(event, ModelReplied)]
    assert held.open_text(first.text) == DRAFT
    assert held.open_text(flow.ask("canary?")).startswith("I am a script")
    assert "canary-draft" not in _said(flow)


def test_a_typed_answer_is_held_as_it_is_checked() -> None:
    wrong = call("final_answer", euros="canary")
    beside = together(answer(Sum(euros=7)), call("look_up", text="it"))
    flow = _drive(wrong, beside, answer(Sum(euros=40)), output=Sum)
    assert _args(flow) == {"answer": {"euros": 40}}
    refused = [text for text in flow.transcript if "refused" in text]
    assert len(refused) == 2
    assert "canary" not in _said(flow)
    assert flow.edit({"answer": {"euros": 41}}).output == {"euros": 41}


def test_the_rules_of_an_answer_are_those_of_a_tool() -> None:
    rules = Answer(
        approval=lambda answer: "euros" in answer,
        risk=lambda answer: Risk.HIGH if "40" in answer else Risk.LOW,
    )
    assert _drive(say("Hello."), answer=rules).output == "Hello."
    assert _drive(say(BETTER), answer=rules).gate.risk is Risk.HIGH
    assert _drive(say("Hello."), answer=False).output == "Hello."
    assert _drive(say("Hello."), answer=lambda answer: True).gate.kind is GateKind.APPROVAL
    with pytest.raises(DefinitionError, match="give your tool another name"):
        spec_of("a", tools=[call_of("final_answer")], answer=True)


def call_of(name: str) -> Any:
    def made(text: str) -> str:
        """Makes a tool of this name."""
        return text

    made.__name__ = name
    return tool(effect="read")(made)


def test_a_message_that_comes_before_the_release_is_read_first() -> None:
    flow = _drive(say(DRAFT), say(BETTER)).write("And the tax?").approve()
    assert (flow.status, _args(flow)) == ("suspended", {"answer": BETTER})
    assert flow.approve().output == BETTER


@script
def _parent(turn: Turn) -> Any:
    found = turn.result("child")
    return call("child", text="it") if found is None else say(f"{found.outcome}: {found.content}")


@pytest.mark.parametrize("holds", [False, True])
def test_an_answer_to_a_parent_is_held_only_if_its_agent_says_so(holds: bool) -> None:
    child = spec_of("child", input=Question, model=_say, answer=holds)
    flow = drive(spec_of("boss", input=Question, model=_parent, subagents=[child]), ASKED)
    if holds:
        assert flow.gate.path == ("boss", "child", "final_answer")
        flow.approve()
    assert flow.output == "success: found"


@script
def _say(turn: Turn) -> Any:
    return say("found")

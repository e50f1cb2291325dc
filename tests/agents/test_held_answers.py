"""An agent that holds its answer or a message: a reviewer releases it, no draft of it is stored as it is."""

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo

from agents.errors import DefinitionError
from agents.sdk import Answer, Compaction, agent, tool
from agents.sdk.scripts import Turn, answer, script, together
from agents.testing import Flow, call, drive, say
from agents.tools.requester import MAX_TOLD, tell_requester
from runtime.core.run.events import Compacted, ModelReplied, ToolReturned
from runtime.core.values.enums import GateKind, Risk
from runtime.keyring import sealing
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
        **{"tools": [look_up], "answer": True, **options},
    )
    return drive(desk, ASKED, model=model)


def _heard(turn: Turn) -> Any:
    """Answer with what the model was told about its first answer."""
    told = turn.result("final_answer")
    assert told is not None
    return say(f"{told.outcome}: {told.why}")


def _args(flow: Flow) -> Any:
    """The arguments of the open gate as a reviewer reads them."""
    return sealing.open_args_for_reviewers(flow.gate.tool, flow.gate.args)


def _said(flow: Flow) -> str:
    """Everything that is stored of the run, with the state that it waits in."""
    return "\n".join([*flow.journal, repr(flow._worker.now), repr(flow._worker.snapshots)])


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
    assert sealing.open_text(first.text) == DRAFT
    assert sealing.open_text(flow.ask("canary?")).startswith("I am a script")
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


TELL = call("tell_requester", message=DRAFT)


def _tells(*model: Any, **rules: Any) -> Flow:
    return _drive(*model, answer=False, tools=[look_up, tell_requester(**rules)])


def _was_told(turn: Turn) -> Any:
    """Answer with what the model was told about its message."""
    told = turn.result("tell_requester")
    assert told is not None
    return say(f"{told.outcome}: {told.content if told.ok else told.why}")


def test_a_message_waits_and_the_run_goes_on_after_its_release() -> None:
    flow = _tells(together(say(f"I say {DRAFT}"), TELL), _was_told)
    assert (flow.status, flow.gate.kind) == ("suspended", "approval")
    assert _args(flow) == {"message": DRAFT}
    assert "canary" not in _said(flow)
    assert sealing.open_text(flow.ask("canary?")).startswith("I am a script")
    flow.approve()
    assert flow.output == f"success: {DRAFT}"
    [released] = [event.result for event in flow.events if isinstance(event, ToolReturned)]
    assert released == DRAFT
    flow = _tells(TELL, _was_told).edit({"message": BETTER})
    assert (flow.output, "canary" in _said(flow)) == (f"success: {BETTER}", False)


def test_a_denied_message_stays_unread_and_one_needs_no_approval() -> None:
    flow = _tells(TELL, _was_told).deny("too early")
    assert flow.output == "denied: too early"
    assert "canary" not in _said(flow)
    asks = _tells(TELL, say("Done."), approval=lambda message: "canary" not in message)
    assert (asks.output, "canary" in _said(asks)) == ("Done.", True)
    long = call("tell_requester", message=f"{DRAFT}{'x' * MAX_TOLD}")
    flow = _tells(long, say("Done."))
    assert (flow.output, "canary" in _said(flow)) == ("Done.", False)
    typed = [say(DRAFT), answer(Sum(euros=40))]
    flow = _drive(*typed, answer=False, output=Sum, tools=[tell_requester()])
    assert (flow.output, "canary" in _said(flow)) == ({"euros": 40}, False)


def _summed_up(turn: Turn) -> Any:
    return say("Done.") if turn.summary else call("look_up", text="it")


def test_a_summary_by_the_author_may_say_the_message() -> None:
    compaction = Compaction(messages=4, summarise=lambda _: DRAFT)
    tools = [look_up, tell_requester()]
    flow = _drive(*[_summed_up] * 4, answer=False, tools=tools, compaction=compaction)
    [event] = [event for event in flow.events if isinstance(event, Compacted)]
    assert (flow.output, sealing.open_text(event.summary)) == ("Done.", DRAFT)
    assert "canary" not in _said(flow)


@pytest.mark.parametrize("holds", [True, False])
def test_arguments_of_a_misspelt_call_are_sealed_too(holds: bool) -> None:
    """They may be the held text. Its model gets them back as they were."""
    name = "final_anser" if holds else "tell_requestor"
    seen: list[Any] = []

    def model(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        parts = [part for one in messages for part in one.parts]
        seen.extend(part.args for part in parts if isinstance(part, ToolCallPart))
        return say("Sorry.") if seen else call(name, answer=DRAFT)

    tools = [look_up] if holds else [look_up, tell_requester()]
    desk = spec_of("desk", input=Question, model=model, answer=holds, tools=tools)
    flow = drive(desk, ASKED)
    assert "canary" not in _said(flow)
    assert {"answer": DRAFT} in seen


@pytest.mark.parametrize("holds", [True, False])
def test_details_of_a_provider_are_sealed_too(holds: bool) -> None:
    """They can repeat a thought or the text. Its model gets them back as JSON. OpenAI's client puts a time there."""
    details = {"raw": [DRAFT], "timestamp": datetime(2026, 11, 27, tzinfo=UTC)}
    seen: list[Any] = []

    def model(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        replies = [one for one in messages if isinstance(one, ModelResponse)]
        seen[:] = [part.provider_details for one in replies for part in (one, *one.parts)]
        if seen:
            return say("Done.")
        parts: list[Any] = [
            TextPart("I look.", provider_details=details),
            ThinkingPart("hm", provider_details=details),
            ToolCallPart("look_up", {"text": "it"}, "a", provider_details=details),
        ]
        if not holds:
            told = {"message": "You wait."}
            parts.append(ToolCallPart("tell_requester", told, "b", provider_details=details))
        return ModelResponse(parts=parts, provider_details=details)

    tools = [look_up] if holds else [look_up, tell_requester(approval=False)]
    flow = drive(spec_of("desk", input=Question, model=model, answer=holds, tools=tools), ASKED)
    assert "canary" not in _said(flow)
    stored = {"raw": [DRAFT], "timestamp": "2026-11-27T00:00:00Z"}
    assert seen == [stored] * (4 if holds else 5)

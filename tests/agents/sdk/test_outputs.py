"""Typed results: checked before the agent finishes, refused with all errors, and JSON everywhere."""

import json
from typing import Any, Literal
from uuid import uuid4

import pytest
from pydantic import BaseModel, Field
from pydantic_ai.messages import ModelResponse, TextPart

from agents.errors import DefinitionError
from agents.llm.conversation_cache import conversation_of
from agents.llm.messages import from_provider, tools_of
from agents.sdk import tool
from agents.testing import answer, call, drive, replies, say, together
from runtime.core.events import ModelReplied
from tests.support.specs import spec_of

X = {"name": "x"}


class Quote(BaseModel):
    euros: int = Field(ge=1)
    parts: list[str] = []
    kind: Literal["fixed", "open"] = "fixed"


@tool(effect="read")
def look() -> str:
    """Looks."""
    return "seen"


def made(**changed: Any) -> Any:
    return spec_of(**{"name": "quotes", "tools": [look], "output": Quote, **changed})


quotes = made()
WHOLE = {"euros": 9, "parts": ["a"], "kind": "fixed"}


@pytest.mark.parametrize(
    "reply", [answer({"euros": 9, "parts": ["a"]}), say('{"euros": 9, "parts": ["a"]}')]
)
def test_a_result_is_stored_as_its_model_returns_it(reply: Any) -> None:
    run = drive(quotes, X, model=[reply])
    assert (run.status, run.output) == ("completed", WHOLE)


def test_a_result_equal_to_the_models_is_stored_once() -> None:
    run = drive(quotes, X, model=[answer(WHOLE)])
    (replied,) = [event for event in run.events if isinstance(event, ModelReplied)]
    assert (replied.output, replied.output_kept) == (WHOLE, True)
    assert replied.reply == {"parts": [{"part_kind": "tool-call"}]}


def test_all_errors_are_reported_at_once() -> None:
    wrong = answer({"euros": 0, "kind": "other"})
    run = drive(quotes, X, model=[wrong, answer(Quote(euros=9, parts=["a"]))])
    assert run.output == WHOLE
    (refused,) = [line for line in run.transcript if "refused" in line]
    assert "final_answer.euros: Input should be greater than or equal to 1" in refused
    assert "final_answer.kind: Input should be 'fixed' or 'open'" in refused


def test_a_text_is_no_typed_result_and_the_model_is_told() -> None:
    told: list[str] = []

    def listen(messages: Any) -> Any:
        told.extend(str(part.content) for part in messages[-1].parts)
        return answer(WHOLE)

    model = replies(say("Nine euros."), lambda _: answer(WHOLE))
    run = drive(quotes, X, model=lambda messages, info: listen(messages) and model(messages, info))
    assert run.output == WHOLE
    assert told[-1].startswith("This answer could not be taken: give the final answer by calling")


def test_a_model_that_never_gives_one_fails_the_run_by_name() -> None:
    run = drive(quotes, X, model=[answer({"euros": 0})] * 5)
    assert run.status == "failed"
    assert str(run.reason).startswith(
        "5 calls that could not be made, among them final_answer: final_answer.euros: Input should"
    )


def test_a_result_beside_other_calls_comes_too_early() -> None:
    run = drive(quotes, X, model=[together(call("look"), answer(WHOLE)), answer(WHOLE)])
    assert (run.output, [made.tool for made in run.calls]) == (WHOLE, ["look"])
    assert "final_answer is called once and alone" in str(run)


def test_the_caller_of_an_agent_is_given_its_result_as_json() -> None:
    boss = made(name="boss", tools=[], subagents=[quotes], output=None)
    given: list[Any] = []

    def hear(turn: Any) -> Any:
        given.append(turn.result("quotes").content)
        return say("Done.")

    run = drive(boss, X, models={"boss": [call("quotes", **X), hear], "quotes": [answer(WHOLE)]})
    assert (run.output, given) == ("Done.", [WHOLE])


def test_a_result_that_people_write_after_goes_back_as_text() -> None:
    reply = from_provider(quotes, answer(WHOLE))
    assert (reply.calls, reply.output, reply.output_kept) == ((), WHOLE, True)
    said = {"reply": reply.reply, "text": reply.text, "calls": [], "output": reply.output}
    messages = (
        {"role": "input", "content": X},
        {"role": "model", **said},
        {"role": "message", "by": "ada", "content": "And in dollars?"},
    )
    _, back, _ = conversation_of(quotes, uuid4(), "0", messages)
    assert isinstance(back, ModelResponse)
    (part,) = back.parts
    assert isinstance(part, TextPart)
    assert json.loads(part.content) == WHOLE


def test_a_model_must_call_a_tool_unless_it_sums_up() -> None:
    asked, summing = tools_of(quotes), tools_of(quotes, summary=True)
    assert [one.name for one in asked.output_tools] == ["final_answer"]
    assert (asked.allow_text_output, summing.allow_text_output) == (False, True)
    assert from_provider(quotes, say("So far."), summary=True).calls == ()


@pytest.mark.parametrize(
    "changed", [{"output": dict}, {"tools": [], "subagents": [made(name="final_answer")]}]
)
def test_an_output_that_cannot_work_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match="agent quotes: "):
        made(**changed)


def test_only_an_agent_with_a_typed_result_has_it_in_its_version() -> None:
    assert "output" not in made(output=None).definition
    assert made(output=None).fingerprint != quotes.fingerprint

"""A stored reply holds what the provider sent, each argument once, and comes back from there as it was."""

import json
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai.messages import (
    BinaryContent,
    FilePart,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)
from pydantic_ai.usage import RequestUsage

from agents.gateway.messages import from_provider
from agents.gateway.replies import read, whole
from agents.gateway.scripted import call, say
from agents.sdk import agent, tool
from agents.spec import AgentSpec
from runtime.core.continuation import Call
from runtime.ports import ModelAnswer

ARGS = {"word": "xyzzy", "none": None, "more": [1, 2.5, {"ä": True}]}


class Question(BaseModel):
    text: str


@tool(effect="read")
def look_up(word: str) -> str:
    """Looks a word up."""
    return word


asker = agent(
    name="asker",
    description="Asks.",
    instructions="Ask.",
    input=Question,
    model=lambda *_: say(""),
    tools=[look_up],
)


def message_of(answer: ModelAnswer) -> tuple[dict[str, Any], tuple[Call, ...]]:
    """What the core makes of it: the frame's message and its calls, as they are stored."""
    calls = tuple(
        Call(id=f"c1.{number}", tool=one.tool, args=json.loads(json.dumps(one.args)))
        for number, one in enumerate(answer.calls)
    )
    message = {
        "role": "model",
        "reply": json.loads(json.dumps(answer.reply)),
        "text": answer.text,
        "calls": [call.id for call in calls],
    }
    return message, calls


def back(answer: ModelAnswer) -> ModelResponse:
    message, calls = message_of(answer)
    (found,) = whole([message], calls)
    return read(found["reply"])


def called(args: Any, **given: Any) -> ToolCallPart:
    return ToolCallPart(tool_name="look_up", args=args, tool_call_id="p-7", **given)


WRITTEN = [
    json.dumps(ARGS, separators=(",", ":"), ensure_ascii=False),
    json.dumps(ARGS, separators=(",", ":")),
    json.dumps(ARGS, ensure_ascii=False),
    json.dumps(ARGS),
]


@pytest.mark.parametrize(
    "parts",
    [
        [TextPart("xyzzy")],
        [TextPart("a"), TextPart("b")],
        [TextPart("", id="t-1")],
        [ThinkingPart("hm", signature="s1gn3d", provider_name="acme"), TextPart("xyzzy")],
        [TextPart("I look.", provider_details={"phase": None}), called(ARGS)],
        *([called(text)] for text in WRITTEN),
        [called(json.dumps(ARGS, indent=1))],
        [called('{"word": "a", "word": "b"}'), called(ARGS, id="fc_1", provider_name="acme")],
        [called("no json"), called('["word"]'), called("{")],
        [
            NativeToolCallPart(tool_name="web", args={"q": None}, tool_call_id="n-1"),
            NativeToolReturnPart(tool_name="web", content={"is": None}, tool_call_id="n-1"),
            FilePart(BinaryContent(b"\x00\xff", media_type="image/png")),
            called(ARGS),
        ],
    ],
    ids=repr,
)
def test_a_reply_comes_back_as_the_provider_gave_it(parts: list[Any]) -> None:
    given = ModelResponse(
        parts=parts,
        usage=RequestUsage(input_tokens=5, cache_read_tokens=3, details={"reasoning": 7}),
        model_name="m-2026",
        provider_name="acme",
        provider_details={"finish_reason": "stop"},
        provider_response_id="r-1",
        finish_reason="stop",
    )
    found = back(from_provider(asker, given))
    kept = replace(given, timestamp=found.timestamp, usage=replace(given.usage, input_tokens=0))
    assert _comparable(found) == _comparable(kept)


def _comparable(response: ModelResponse) -> ModelResponse:
    """The parts of a file know what they were made of."""
    parts = [
        replace(part, content=(part.content.data, part.content.media_type))  # type: ignore[arg-type]
        if isinstance(part, FilePart)
        else part
        for part in response.parts
    ]
    return replace(response, parts=parts)


@pytest.mark.parametrize("args", [ARGS, *WRITTEN], ids=["object", *"1234"])
def test_an_argument_is_stored_once(args: Any) -> None:
    answer = from_provider(asker, ModelResponse(parts=[called(args)]))
    assert json.dumps(answer.reply).count("xyzzy") == 0
    assert [one.args for one in answer.calls] == [ARGS]


def test_a_text_is_stored_once() -> None:
    answer = from_provider(asker, ModelResponse(parts=[TextPart("xyzzy"), called(ARGS)]))
    assert (answer.text, json.dumps(answer.reply).count("xyzzy")) == ("xyzzy", 0)


def test_nothing_empty_and_nothing_of_the_clients_own_is_stored() -> None:
    assert from_provider(asker, say("Done.")).reply == {"parts": [{"part_kind": "text"}]}
    assert from_provider(asker, call("look_up", word="a")).reply == {
        "parts": [{"part_kind": "tool-call"}]
    }


def test_an_agent_without_a_script_keeps_the_name_of_the_model_that_replied() -> None:
    given = ModelResponse(parts=[TextPart("so")], model_name="m-2026")
    answer = from_provider(replace(asker, model=None, models=("acme:m",)), given)
    assert answer.reply["model_name"] == "m-2026"


def test_a_reply_is_the_same_message_whenever_it_is_read() -> None:
    answer = from_provider(asker, call("look_up", word="a"))
    assert back(answer) == back(answer)


def test_calls_without_an_id_of_the_provider_get_one_that_stays() -> None:
    calls = [ToolCallPart(tool_name="look_up", args=ARGS) for _ in range(2)]
    answer = from_provider(asker, ModelResponse(parts=calls))
    found = [[part.tool_call_id for part in back(answer).tool_calls] for _ in range(2)]
    assert found == [["c1-0", "c1-1"]] * 2  # Anthropic takes no dot


def test_what_is_secret_stays_in_the_reply_as_it_was_sealed(sealed: AgentSpec) -> None:
    answer = from_provider(sealed, ModelResponse(parts=[called({"word": "xyzzy"})]))
    assert "xyzzy" not in json.dumps([answer.reply, answer.calls[0].args])
    (part,) = answer.reply["parts"]
    assert set(part) == {"part_kind", "tool_name", "tool_call_id", "args"}


@pytest.fixture
def sealed() -> AgentSpec:
    from agents.testing import surroundings

    surroundings.prepare(secrets=True)

    @tool(effect="read", secret_args=("word",))
    def whisper(word: str) -> str:
        """Looks a word up."""
        return word

    return replace(asker, tools=(replace(whisper, name="look_up"),))


def test_a_reply_of_an_earlier_release_stays_as_it_is() -> None:
    part = {"part_kind": "tool-call", "tool_name": "look_up", "args": ARGS, "tool_call_id": "p-1"}
    reply = {"kind": "response", "parts": [part, {"part_kind": "text", "content": "so"}]}
    message = {"role": "model", "reply": reply, "text": "other", "calls": ["c1.0"]}
    assert whole([message], (Call(id="c1.0", tool="t", args={}),)) == (message,)

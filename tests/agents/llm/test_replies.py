"""A stored reply holds the provider's fields, each argument once, and is restored unchanged."""

import json
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError
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

from agents.llm import plain_replies
from agents.llm.messages import from_provider
from agents.llm.replies import _dumped, _validated, read, whole
from agents.sdk import tool
from agents.sdk.scripts import call, say
from agents.sdk.spec import AgentSpec
from runtime.core.continuation import Call
from runtime.ports.effects import ModelAnswer
from tests.support.specs import spec_of

ARGS = {"word": "xyzzy", "none": None, "more": [1, 2.5, {"ä": True}]}


@tool(effect="read")
def look_up(word: str) -> str:
    """Looks a word up."""
    return word


asker = spec_of("asker", model=lambda *_: say(""), tools=[look_up])


def message_of(answer: ModelAnswer) -> tuple[dict[str, Any], tuple[Call, ...]]:
    """Return the frame's message and its calls as the core stores them."""
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
    return read(message, {call.id: call for call in calls})


def called(args: Any, **given: Any) -> ToolCallPart:
    return ToolCallPart(tool_name="look_up", args=args, tool_call_id="p-7", **given)


def as_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


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
    answer = from_provider(asker, given)
    found = back(answer)
    message, calls = message_of(answer)
    (filled,) = whole([message], calls)
    assert _comparable(_validated(filled["reply"])) == _comparable(found)
    kept = replace(given, timestamp=found.timestamp, usage=replace(given.usage, input_tokens=0))
    assert _comparable(found) == _comparable(kept)


def _comparable(response: ModelResponse) -> ModelResponse:
    """Return the response with comparable files, since the parts of a file keep their source."""
    parts = [
        replace(part, content=(part.content.data, part.content.media_type))  # type: ignore[arg-type]
        if isinstance(part, FilePart)
        else part
        for part in response.parts
    ]
    return replace(response, parts=parts)


@pytest.mark.parametrize("args", [ARGS, *WRITTEN], ids=["object", *"1234"])
def test_arguments_and_texts_are_stored_once(args: Any) -> None:
    answer = from_provider(asker, ModelResponse(parts=[TextPart("xyzzy"), called(args)]))
    assert json.dumps(answer.reply).count("xyzzy") == 0
    assert (answer.text, [one.args for one in answer.calls]) == ("xyzzy", [ARGS])


def test_nothing_empty_and_nothing_of_the_clients_own_is_stored() -> None:
    assert from_provider(asker, say("Done.")).reply == {"parts": [{"part_kind": "text"}]}
    assert from_provider(asker, call("look_up", word="a")).reply == {
        "parts": [{"part_kind": "tool-call"}]
    }


def test_only_the_name_of_a_real_model_is_stored() -> None:
    given = ModelResponse(parts=[TextPart("so")], model_name="m-2026")
    answer = from_provider(replace(asker, model=None, models=("acme:m",)), given)
    assert answer.reply["model_name"] == "m-2026"
    assert "model_name" not in from_provider(asker, given, model=asker.model_name).reply


def test_a_reply_is_the_same_message_whenever_it_is_read() -> None:
    answer = from_provider(asker, call("look_up", word="a"))
    assert back(answer) == back(answer)


def test_calls_without_an_id_of_the_provider_get_one_that_stays() -> None:
    calls = [ToolCallPart(tool_name="look_up", args=ARGS) for _ in range(2)]
    answer = from_provider(asker, ModelResponse(parts=calls))
    found = [[part.tool_call_id for part in back(answer).tool_calls] for _ in range(2)]
    assert found == [["c1-0", "c1-1"]] * 2  # Anthropic takes no dot


def test_secrets_stay_sealed_in_the_stored_reply(sealed: AgentSpec) -> None:
    answer = from_provider(sealed, ModelResponse(parts=[called({"word": "xyzzy"})]))
    assert "xyzzy" not in json.dumps([answer.reply, answer.calls[0].args])
    (part,) = answer.reply["parts"]
    assert set(part) == {"part_kind", "tool_name", "tool_call_id", "args"}


@pytest.fixture
def sealed() -> AgentSpec:
    from agents.testing import setup

    setup.prepare(secrets=True)

    @tool(effect="read", secret_args=("word",))
    def whisper(word: str) -> str:
        """Looks a word up."""
        return word

    return replace(asker, tools=(replace(whisper, name="look_up"),))


PLAIN = [
    ModelResponse(parts=[]),
    ModelResponse(parts=[TextPart("so"), called(ARGS)], model_name="m-1", finish_reason="stop"),
    ModelResponse(
        parts=[ThinkingPart("hm", id="t", signature="s", provider_name="acme"), called(WRITTEN[0])],
        usage=RequestUsage(input_tokens=5, output_tokens=2),
        provider_name="acme",
        provider_url="https://acme.example",
        provider_response_id="r-1",
    ),
    ModelResponse(parts=[TextPart("", id="t-1", provider_name="acme"), called({}), called(None)]),
]


@pytest.mark.parametrize("given", PLAIN, ids=repr)
def test_a_plain_reply_is_dumped_as_pydantic_dumps_it(given: ModelResponse) -> None:
    found = plain_replies.dump(given)
    assert list((found or {}).items()) == list(_dumped(given).items())


@pytest.mark.parametrize("given", PLAIN[:-1], ids=repr)
def test_a_plain_reply_is_built_as_pydantic_reads_it(given: ModelResponse) -> None:
    usage = {"usage": {"cache_read_tokens": 3, "details": {"reasoning": 7}}}
    kept = {**as_json(_dumped(given)), "provider_details": {"a": None}, **usage}
    assert plain_replies.build(kept, kept["parts"]) == _validated(kept)


@pytest.mark.parametrize(
    "given",
    [
        ModelResponse(parts=[], state="suspended"),
        ModelResponse(parts=[], metadata={"a": 1}),
        ModelResponse(parts=[], usage=RequestUsage(cache_read_tokens=3)),
        ModelResponse(parts=[called(ARGS, provider_details={"a": 1})]),
        ModelResponse(parts=[FilePart(BinaryContent(b"\x00", media_type="image/png"))]),
    ],
    ids=repr,
)
def test_replies_with_other_fields_are_left_to_pydantic(given: ModelResponse) -> None:
    assert plain_replies.dump(given) is None


@pytest.mark.parametrize(
    ("of_reply", "of_part"),
    [
        ({"model_name": 3}, {}),
        ({"finish_reason": "tired"}, {}),
        ({"finish_reason": ["stop"]}, {}),
        ({}, {"tool_name": None}),
        ({}, {"args": [1]}),
        ({}, {"id": 7}),
        ({"parts": [{"part_kind": "thinking"}]}, {}),  # without its text
    ],
)
def test_a_reply_with_a_field_of_another_type_is_not_read(
    of_reply: dict[str, Any], of_part: dict[str, Any]
) -> None:
    part = {"part_kind": "tool-call", "tool_name": "look_up", "args": {}, "tool_call_id": "p"}
    reply = {"parts": [{**part, **of_part}], **of_reply}
    with pytest.raises(ValidationError):
        read({"role": "model", "reply": reply, "text": "", "calls": ["c1.0"]}, {})


def test_a_script_that_changes_arguments_changes_only_its_own() -> None:
    call = Call(id="c1.0", tool="look_up", args={"word": "a"})
    reply = {"parts": [{"part_kind": "tool-call"}]}
    message = {"role": "model", "reply": reply, "text": "", "calls": ["c1.0"]}
    (part,) = read(message, {"c1.0": call}).tool_calls
    assert isinstance(part.args, dict)
    part.args["word"] = "b"
    assert call.args == {"word": "a"}


def test_a_reply_of_an_earlier_release_stays_as_it_is() -> None:
    part = {"part_kind": "tool-call", "tool_name": "look_up", "args": ARGS, "tool_call_id": "p-1"}
    reply = {"kind": "response", "parts": [part, {"part_kind": "text", "content": "so"}]}
    message = {"role": "model", "reply": reply, "text": "other", "calls": ["c1.0"]}
    assert whole([message], (Call(id="c1.0", tool="t", args={}),)) == (message,)

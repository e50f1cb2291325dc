"""A stored reply has each argument once and is restored unchanged; long conversations are translated once."""

import json
import sys
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest
from pydantic import ValidationError
from pydantic_ai.messages import (
    BinaryContent,
    FilePart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)
from pydantic_ai.messages import ToolReturnPart as Result
from pydantic_ai.usage import RequestUsage

from agents.llm import messages as conversations
from agents.llm import replies
from agents.llm.messages import KEPT, MIN_CACHED_MESSAGES, convert_messages, fit, to_provider
from agents.llm.replies import (
    _REPLIES,
    NO_TIME,
    convert_provider_reply,
    restore_replies,
    restore_reply,
)
from agents.sdk import tool
from agents.sdk.scripts import call, say
from agents.sdk.spec import AgentSpec
from runtime.core.run.continuation import Call
from runtime.core.values.enums import CallState
from runtime.ports.effects import ModelAnswer
from tests.bench.sides.agents import Walk, walker
from tests.support.specs import spec_of

ARGS = {"word": "xyzzy", "none": None, "more": [1, 2.5, {"ä": True}]}
WRITTEN = [
    json.dumps(ARGS, separators=(",", ":"), ensure_ascii=False),
    json.dumps(ARGS, separators=(",", ":")),
    json.dumps(ARGS, ensure_ascii=False),
    json.dumps(ARGS),
]


@tool(effect="read")
def look_up(word: str) -> str:
    """Looks a word up."""
    return word


asker = spec_of("asker", model=lambda *_: say(""), tools=[look_up])


def as_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


def kept(answer: ModelAnswer) -> tuple[dict[str, Any], tuple[Call, ...]]:
    """Return the frame's message and its calls as the core stores them."""
    calls = tuple(
        Call(id=f"c1.{number}", tool=one.tool, args=as_json(one.args))
        for number, one in enumerate(answer.calls)
    )
    ids = [call.id for call in calls]
    reply = as_json(answer.reply)
    return {"role": "model", "reply": reply, "text": answer.text, "calls": ids}, calls


def back(answer: ModelAnswer) -> ModelResponse:
    message, calls = kept(answer)
    return restore_reply(message, {call.id: call for call in calls})


def called(args: Any, **given: Any) -> ToolCallPart:
    return ToolCallPart(tool_name="look_up", args=args, tool_call_id="p-7", **given)


@pytest.mark.parametrize(
    "parts",
    [
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
    found = back(answer := convert_provider_reply(asker, given))
    message, calls = kept(answer)
    (filled,) = restore_replies([message], calls)
    (restored,) = _REPLIES.validate_python([{"timestamp": NO_TIME, **filled["reply"]}])
    same = replace(given, timestamp=found.timestamp, usage=replace(given.usage, input_tokens=0))
    assert _comparable(restored) == _comparable(found) == _comparable(same)
    alone = back(convert_provider_reply(asker, ModelResponse(parts=parts)))  # not validated
    assert _comparable(alone) == ModelResponse(parts=_comparable(same).parts, timestamp=NO_TIME)


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
    answer = convert_provider_reply(asker, ModelResponse(parts=[TextPart("xyzzy"), called(args)]))
    assert json.dumps(answer.reply).count("xyzzy") == 0
    assert (answer.text, [one.args for one in answer.calls]) == ("xyzzy", [ARGS])


def test_nothing_empty_and_nothing_of_the_clients_own_is_stored() -> None:
    assert convert_provider_reply(asker, say("Done.")).reply == {"parts": [{"part_kind": "text"}]}
    answer = convert_provider_reply(asker, call("look_up", word="a"))
    assert answer.reply == {"parts": [{"part_kind": "tool-call"}]}
    assert back(answer) == back(answer)  # the same message whenever it is read
    given = ModelResponse(parts=[TextPart("so")], model_name="m-2026")
    assert convert_provider_reply(asker, given).reply["model_name"] == "m-2026"
    assert "model_name" not in convert_provider_reply(asker, given, model=asker.model_name).reply


def test_calls_without_an_id_of_the_provider_get_one_that_stays() -> None:
    calls = [ToolCallPart(tool_name="look_up", args=ARGS) for _ in range(2)]
    answer = convert_provider_reply(asker, ModelResponse(parts=calls))
    found = [part.tool_call_id for part in back(answer).tool_calls]
    assert found == ["c1-0", "c1-1"]  # Anthropic takes no dot


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
        restore_reply({"role": "model", "reply": reply, "text": "", "calls": ["c1.0"]}, {})


def test_a_model_that_changes_arguments_and_results_changes_only_its_own() -> None:
    message, (call_,) = kept(convert_provider_reply(asker, call("look_up", word=["a"])))
    (part,) = restore_reply(message, {"c1.0": call_}).tool_calls
    assert isinstance(part.args, dict)
    part.args["word"].append("b")
    assert call_.args == {"word": ["a"]}
    result = {"call": "c1.0", "tool": "look_up", "outcome": "returned", "content": ["a"]}
    told = (message, {"role": "results", "results": [result]})
    returned = to_provider(asker, told, calls=(call_,))[-1].parts[0]
    assert isinstance(returned, Result)
    content: Any = returned.content
    content.append("b")
    assert result["content"] == ["a"]


def test_a_reply_that_is_stored_whole_stays_as_it_is() -> None:
    part = {"part_kind": "tool-call", "tool_name": "look_up", "args": ARGS, "tool_call_id": "p-1"}
    reply = {"kind": "response", "parts": [part, {"part_kind": "text", "content": "so"}]}
    message = {"role": "model", "reply": reply, "text": "other", "calls": ["c1.0"]}
    assert restore_replies([message], (Call(id="c1.0", tool="t", args={}),)) == (message,)


def messages(turns: int = MIN_CACHED_MESSAGES) -> tuple[dict[str, Any], ...]:
    """Return the messages of a walker frame after so many turns."""
    found: list[dict[str, Any]] = [{"role": "input", "content": {"turns": turns}}]
    for turn in range(1, turns + 1):
        call = {"part_kind": "tool-call", "tool_name": "step", "args": {"n": turn}}
        reply = {"kind": "response", "parts": [{**call, "tool_call_id": f"p{turn}"}]}
        result = {"call": f"c{turn}.0", "tool": "step", "outcome": "returned", "content": turn}
        found += [
            {"role": "model", "reply": reply, "text": "", "calls": [f"c{turn}.0"]},
            {"role": "results", "results": [result]},
        ]
    return tuple(found)


def parts(conversation: list[Any]) -> list[Any]:
    """All that is said; replies of a script bear the time of their translation."""
    return [
        (part.part_kind, getattr(part, "content", None), getattr(part, "tool_call_id", None))
        for message in conversation
        for part in message.parts
    ]


@pytest.fixture
def run() -> UUID:
    return uuid4()


def test_only_new_messages_are_translated(run: UUID, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []

    def counted(agent: AgentSpec, given: Any, done: Any, *_: Any) -> list[Any]:
        begun.append(len(done))
        return to_provider(agent, given, done)

    monkeypatch.setattr(conversations, "to_provider", counted)
    whole = messages()
    for end in range(1, len(whole) + 1):
        found: list[Any] = convert_messages(walker, run, "0", whole[:end])
        assert parts(found) == parts(to_provider(walker, whole[:end]))
        found.append(found[0])  # the caller may change the list
    again, same = (to_provider(walker, whole) for _ in range(2))
    assert again[1:] == same[1:]  # an input bears the time of its translation
    assert begun == [*[0] * MIN_CACHED_MESSAGES, *range(MIN_CACHED_MESSAGES, len(whole))]


def test_equal_messages_loaded_anew_are_not_translated_anew(run: UUID) -> None:
    calls = (Call(id="c1.0", tool="step", args={"n": 1}),)
    before = convert_messages(walker, run, "0", messages()[:-2], calls=calls)
    again = (replace(calls[0], state=CallState.RETURNED), Call(id="c2.0", tool="step", args={}))
    after = convert_messages(walker, run, "0", messages(), calls=again)
    assert all(one is other for one, other in zip(before, after, strict=False))
    assert parts(after) == parts(to_provider(walker, messages()))
    changed = messages()
    changed[2]["results"][0]["content"] = "something else"
    other = convert_messages(walker, run, "0", changed, calls=again)
    assert parts(other) == parts(to_provider(walker, changed))


def test_a_reply_with_other_arguments_is_translated_anew(run: UUID) -> None:
    def told(text: str) -> Any:
        call = Call(id="c1.0", tool="step", args={"text": text})
        given = messages()
        given[1]["reply"]["parts"] = [{"part_kind": "tool-call"}]
        return convert_messages(walker, run, "0", given, calls=(call,))[1].parts[0]

    assert [told("a").args, told("b").args] == [{"text": "a"}, {"text": "b"}]


def test_other_instructions_are_told_from_the_beginning(run: UUID) -> None:
    other = spec_of("other", instructions="Other.", input=Walk)
    for agent, given, said in (
        (walker, "Walk.", "Walk."),
        (walker, "Run.", "Run."),
        (other, "", "Other."),
    ):
        found: list[Any] = convert_messages(agent, run, "0", messages(), given)
        assert {one.instructions for one in found if one.kind == "request"} == {said}


def test_two_threads_share_no_conversation(run: UUID, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = messages()
    convert_messages(walker, run, "0", whole[:-2])
    other: list[list[Any]] = []

    def interrupted(message: Any, calls: Any) -> Any:
        if not other:
            other.append([])
            other[0] = convert_messages(walker, run, "0", whole)
        return restore_reply(message, calls)

    monkeypatch.setattr(replies, "restore_reply", interrupted)
    found = convert_messages(walker, run, "0", whole)
    assert parts(found) == parts(other[0]) == parts(to_provider(walker, whole))


def test_no_more_conversations_are_kept_than_said() -> None:
    for _ in range(KEPT + 3):
        convert_messages(walker, uuid4(), "0", messages())
    assert len(conversations._cache) == KEPT


# What every provider takes


def _count_lines(calls: int) -> int:
    """Count the executed lines for a conversation of so many calls, which a provider gave one id."""
    conversation: list[ModelMessage] = []
    for _ in range(calls):
        conversation.append(ModelResponse(parts=[ToolCallPart("ping", {}, "call_0")]))
        conversation.append(ModelRequest(parts=[Result("ping", "open", "call_0")]))
    lines, tracer = 0, sys.gettrace()

    def count(_frame: Any, event: str, _value: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    sys.settrace(count)
    try:
        fit(conversation)
    finally:
        sys.settrace(tracer)
    return lines


def test_equal_ids_cost_no_more_in_a_long_conversation() -> None:
    """All calls of a process share the thread that does this."""
    assert _count_lines(400) <= 2.1 * _count_lines(200)

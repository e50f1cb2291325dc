"""Long conversations are translated once; the cached translation equals a new one."""

from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from agents.llm import conversation_cache, replies
from agents.llm.conversation_cache import KEPT, MIN_CACHED_MESSAGES, conversation_of
from agents.llm.messages import to_provider
from agents.llm.replies import read
from agents.sdk.spec import AgentSpec
from runtime.core.continuation import Call, CallState
from tests.bench.sides.agents import Walk, walker
from tests.support.specs import spec_of

RUN = uuid4()


def messages(turns: int) -> tuple[dict[str, Any], ...]:
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


def test_a_conversation_that_goes_on_is_the_one_translated_anew() -> None:
    whole = messages(MIN_CACHED_MESSAGES)
    for end in range(1, len(whole) + 1):
        found = conversation_of(walker, RUN, "0", whole[:end])
        assert parts(found) == parts(to_provider(walker, whole[:end]))


def test_only_new_messages_are_translated(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []

    def counted(agent: AgentSpec, given: Any, done: Any, *_: Any) -> list[Any]:
        begun.append(len(done))
        return to_provider(agent, given, done)

    monkeypatch.setattr(conversation_cache, "to_provider", counted)
    whole, run = messages(MIN_CACHED_MESSAGES), uuid4()
    conversation_of(walker, run, "0", whole[:-2])
    conversation_of(walker, run, "0", whole)
    assert begun == [0, len(whole) - 2]


def test_equal_messages_loaded_anew_are_not_translated_anew() -> None:
    run, calls = uuid4(), (Call(id="c1.0", tool="step", args={"n": 1}),)
    before = conversation_of(walker, run, "0", messages(MIN_CACHED_MESSAGES)[:-2], calls=calls)
    again = (replace(calls[0], state=CallState.RETURNED), Call(id="c2.0", tool="step", args={}))
    after = conversation_of(walker, run, "0", messages(MIN_CACHED_MESSAGES), calls=again)
    assert all(one is other for one, other in zip(before, after, strict=False))
    assert parts(after) == parts(to_provider(walker, messages(MIN_CACHED_MESSAGES)))


def test_a_conversation_is_the_same_whenever_it_is_translated() -> None:
    told = messages(MIN_CACHED_MESSAGES)
    assert to_provider(walker, told)[1:] == to_provider(walker, told)[1:]  # an input bears its time


def test_other_messages_loaded_anew_are_translated_anew() -> None:
    run, before, after = uuid4(), messages(MIN_CACHED_MESSAGES), messages(MIN_CACHED_MESSAGES)
    after[2]["results"][0]["content"] = "something else"
    conversation_of(walker, run, "0", before)
    assert parts(conversation_of(walker, run, "0", after)) == parts(to_provider(walker, after))


def test_a_reply_with_other_arguments_is_translated_anew() -> None:
    def told(text: str) -> Any:
        call = Call(id="c1.0", tool="step", args={"text": text})
        given = messages(MIN_CACHED_MESSAGES)
        given[1]["reply"]["parts"] = [{"part_kind": "tool-call"}]
        return conversation_of(walker, run, "0", given, calls=(call,))[1].parts[0]

    run = uuid4()
    assert [told("a").args, told("b").args] == [{"text": "a"}, {"text": "b"}]


def test_another_agent_of_a_frame_has_its_own_instructions() -> None:
    run, told = uuid4(), messages(MIN_CACHED_MESSAGES)
    other = spec_of("other", instructions="Other.", input=Walk)
    conversation_of(walker, run, "0", told)
    assert conversation_of(other, run, "0", told)[0].instructions == "Other."  # type: ignore[union-attr]


def test_other_instructions_are_told_from_the_beginning() -> None:
    run, told = uuid4(), messages(MIN_CACHED_MESSAGES)
    for instructions in ("Walk.", "Run."):
        found: list[Any] = conversation_of(walker, run, "0", told, instructions)
        requests = [one for one in found if one.kind == "request"]
        assert {one.instructions for one in requests} == {instructions}


def test_callers_may_change_the_returned_messages() -> None:
    run, told = uuid4(), messages(MIN_CACHED_MESSAGES)
    given: list[Any] = conversation_of(walker, run, "0", told)
    given.append(given[0])
    assert len(conversation_of(walker, run, "0", told)) == len(told)


def test_two_threads_do_not_add_to_the_same_conversation(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, run = messages(MIN_CACHED_MESSAGES), uuid4()
    conversation_of(walker, run, "0", whole[:-2])
    other: list[list[Any]] = []

    def interrupted(message: Any, calls: Any) -> Any:
        if not other:
            other.append([])
            other[0] = conversation_of(walker, run, "0", whole)
        return read(message, calls)

    monkeypatch.setattr(replies, "read", interrupted)
    found = conversation_of(walker, run, "0", whole)
    assert parts(found) == parts(other[0]) == parts(to_provider(walker, whole))


def test_no_more_conversations_are_kept_than_said() -> None:
    told = messages(MIN_CACHED_MESSAGES)
    for _ in range(KEPT + 3):
        conversation_of(walker, uuid4(), "0", told)
    assert len(conversation_cache._known) == KEPT

"""Model calls: the frame's messages in, an answer or a fault out."""

import asyncio
import json
import queue
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, cast

import pytest
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo
from pytest_django import Settings

from agents.effect_handler import AgentEffects
from agents.errors import RegistryError
from agents.llm import event_loop
from agents.llm.call import chosen
from agents.llm.messages import to_provider
from agents.llm.outages import REMEMBERED, Outages
from agents.llm.providers import lacking, require_models
from agents.registry import Registry
from agents.sdk import tool
from agents.sdk.scripts import Turn, call, say, script, together
from agents.sdk.spec import AgentSpec
from runtime.core.events import Proposal
from runtime.execution.effects.perform import perform
from runtime.ports.effects import ModelAnswer, ModelFailure, Outcome
from tests.support.frames import Frame
from tests.support.people import until
from tests.support.specs import Question, registry_of, spec_of

Model = Callable[[list[ModelMessage], AgentInfo], ModelResponse]


@tool()
def look_up(word: str) -> str:
    """Looks a word up."""
    return word


@script
def _echo(turn: Turn) -> ModelResponse:
    return say(turn.input["text"])


def _agent(model: Model | None) -> AgentSpec:
    helper = spec_of("helper", input=Question, model=_echo)
    parts = {"instructions": "Ask well.", "tools": [look_up], "subagents": [helper]}
    return spec_of("asker", input=Question, model=model, **parts)


def _frame(model: Model, text: str = "why?") -> Frame:
    return Frame(AgentEffects(registry_of(_agent(model))), "asker", {"text": text})


def _told(frame: Frame) -> list[Any]:
    """The parts of the last message to the model."""
    asker = frame.handler.registry.get("asker")
    *_, last = to_provider(asker, tuple(frame.messages), calls=frame.calls)
    return list(last.parts)


def test_the_model_gets_instructions_input_tools_and_sub_agents() -> None:
    seen: dict[str, Any] = {}

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.update(messages=messages, info=info)
        return say("ok")

    _frame(model, "Zoë?").ask()
    (request,) = seen["messages"]
    (part,) = request.parts
    assert isinstance(part, UserPromptPart)
    assert part.content == '{"text": "Zoë?"}'
    assert seen["info"].instructions == "Ask well."
    tools = {one.name: one.parameters_json_schema for one in seen["info"].function_tools}
    assert set(tools) == {"look_up", "helper"}
    assert tools["look_up"]["required"] == ["word"]
    assert tools["helper"]["required"] == ["text"]


def test_the_answer_has_text_calls_usage_and_the_reply_as_json() -> None:
    frame = _frame(
        lambda *_: together(
            say("Let me see."), call("look_up", word="why"), call("helper", text="?")
        )
    )
    answer = frame.ask()
    assert answer.text == "Let me see."
    assert answer.calls == (
        Proposal(tool="look_up", args={"word": "why"}),
        Proposal(tool="helper", args={"text": "?"}),
    )
    assert set(answer.usage) == {"input_tokens", "output_tokens"}
    assert all(count > 0 for count in answer.usage.values())
    assert json.loads(json.dumps(answer.reply)) == answer.reply


def test_replies_go_back_unchanged_with_results_by_call_id() -> None:
    reply = ModelResponse(
        parts=[
            ThinkingPart(content="hm", signature="s1gn3d", provider_name="acme"),
            ToolCallPart(tool_name="look_up", args='{"word": "a"}', tool_call_id="p-7"),
            TextPart(content="and"),
            ToolCallPart(tool_name="look_up", args={"word": "b"}, tool_call_id="p-3"),
        ],
        provider_response_id="r-1",
    )
    replies = [reply, say("done")]
    seen: list[ModelMessage] = []

    def model(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        seen[:] = messages
        return replies.pop(0)

    frame = _frame(model)
    assert [one.args for one in frame.ask().calls] == [{"word": "a"}, {"word": "b"}]
    frame.settle(("returned", {"is": 1}), ("failed", "no such word"))
    frame.messages = json.loads(json.dumps(frame.messages))  # as the journal gives it back
    frame.ask()

    _, back, results = seen
    assert isinstance(back, ModelResponse)
    assert (back.parts, back.provider_response_id) == (reply.parts, "r-1")
    assert isinstance(results, ModelRequest)
    told: list[Any] = list(results.parts)
    assert [(part.tool_call_id, part.outcome, part.content) for part in told] == [
        ("p-7", "success", {"is": 1}),
        ("p-3", "failed", "no such word"),
    ]


@pytest.mark.parametrize(
    ("verdict", "outcome", "told", "words"),
    [
        ("", ("denied", "Not\n <ticket 7> & “Bea”"), "denied", "A person denied this call"),
        ("", ("refused", "arguments.word: Field required"), "failed", ""),
        (
            "expire",
            ("denied", "Nobody decided."),
            "denied",
            "not made, because its approval expired. Nobody",
        ),
        ("give_up", ("failed", "No trace."), "failed", "not known whether it took effect"),
    ],
)
def test_the_model_is_told_the_outcome_of_a_call(
    verdict: str, outcome: tuple[str, str], told: str, words: str
) -> None:
    frame = _frame(lambda *_: call("look_up", word="a"))
    frame.ask()
    frame.settle(outcome)
    if verdict:
        frame.messages[-1]["results"][0]["verdict"] = verdict
    (part,) = _told(frame)
    assert (part.part_kind, part.outcome) == ("tool-return", told)
    assert words in part.content
    assert ("A person denied" in part.content) == (words == "A person denied this call")
    assert part.content.endswith(outcome[1])


def test_the_model_is_told_that_a_person_reported_a_result() -> None:
    """A result that the tool itself returned stays as it is."""
    model = script(lambda turn: say(str([(one.content, one.reported) for one in turn.results])))
    frame = _frame(lambda *_: together(call("look_up", word="a"), call("look_up", word="b")))
    frame.ask()
    frame.settle(("returned", {"id": 1}), ("returned", {"id": 1}))
    frame.messages[-1]["results"][0]["reported_by"] = "bea"
    asker = frame.handler.registry.get("asker")
    conversation = to_provider(asker, tuple(frame.messages), calls=frame.calls)
    reported, returned = _told(frame)
    assert str(reported.content).startswith("A person reported this result")
    assert str(reported.content).endswith('{"id": 1}')
    assert (reported.outcome, returned.content) == ("success", {"id": 1})
    heard = model(conversation, cast("AgentInfo", None))  # scripts do not use it
    assert heard.parts == [TextPart(content="[({'id': 1}, True), ({'id': 1}, False)]")]


@pytest.mark.parametrize(
    ("args", "empty"),
    [
        *((args, False) for args in ("{", '{"word": NaN}', "[" * 100_000, '"word"', "nothing")),
        *((args, True) for args in (None, "")),
        ({}, True),
    ],
)
def test_arguments_that_are_no_json_object_stay_unchanged(args: Any, empty: bool) -> None:
    frame = _frame(lambda *_: ModelResponse(parts=[ToolCallPart(tool_name="look_up", args=args)]))
    (proposal,) = frame.ask().calls
    assert (proposal.args == {}) if empty else not isinstance(proposal.args, dict)


def _broken(*_: Any) -> ModelResponse:
    raise KeyError("id\x00\ud800")


@pytest.mark.parametrize(
    ("model", "agent", "fault"),
    [
        (_broken, "asker", "KeyError: "),
        (lambda *_: say("a\x00b"), "asker", "NUL"),  # it cannot be journaled
        (lambda *_: "hello", "asker", "replied with a str"),
        (_echo, "stranger", "no agent named stranger"),
    ],
)
def test_any_error_of_a_model_is_a_failure_with_a_text(model: Any, agent: str, fault: str) -> None:
    frame = _frame(model)
    frame.agent = agent
    outcome = perform(frame.handler, frame.request())
    assert isinstance(outcome, ModelFailure), outcome
    assert fault in outcome.error


def test_a_script_has_replied_on_return_in_the_thread_that_asked() -> None:
    played: list[int] = []
    came: list[Outcome] = []

    def model(*_: Any) -> ModelResponse:
        played.append(threading.get_ident())
        return say("here")

    frame = _frame(model)
    frame.handler.start_model_call(frame.request(), came.append)
    assert isinstance(came[0], ModelAnswer)
    assert came[0].text == "here"
    assert played == [threading.get_ident()]


def test_many_threads_share_one_loop() -> None:
    ran_in: queue.SimpleQueue[str] = queue.SimpleQueue()

    async def call(_: event_loop.Stop) -> None:
        ran_in.put(threading.current_thread().name)

    with ThreadPoolExecutor(20) as pool:
        list(pool.map(lambda _: event_loop.start(call), range(50)))
    assert {ran_in.get(timeout=30) for _ in range(50)} == {"models"}
    assert [t.name for t in threading.enumerate()].count("models") == 1


def test_model_calls_that_wait_hold_no_thread() -> None:
    waiting: list[event_loop.Stop] = []
    ended: queue.SimpleQueue[None] = queue.SimpleQueue()

    async def call(stop: event_loop.Stop) -> None:
        waiting.append(stop)
        await stop
        ended.put(None)

    ends = [event_loop.start(call)]
    until(lambda: waiting, "the first call to be made")
    before = threading.active_count()
    ends += [event_loop.start(call) for _ in range(300)]
    until(lambda: len(waiting) == 301, "every call to be made")
    assert threading.active_count() <= before
    for end in ends:
        end()
    for _ in ends:
        ended.get(timeout=30)


def test_a_call_that_does_not_end_is_given_up() -> None:
    came: queue.SimpleQueue[Exception] = queue.SimpleQueue()

    async def call(stop: event_loop.Stop) -> None:
        try:
            await event_loop.within(0.05, asyncio.Event().wait(), stop)
        except TimeoutError as late:
            came.put(late)

    event_loop.start(call)
    assert isinstance(came.get(timeout=30), TimeoutError)


def test_a_model_whose_name_is_configured_no_more_is_not_asked(settings: Settings) -> None:
    settings.ABEYANCE_MODEL = "openai:a,openai:b,anthropic:c"
    spec = _agent(_echo)
    assert chosen(spec, "", Outages()) == ("openai:a", "openai:b")
    assert chosen(spec, "openai:b", Outages()) == ("openai:b", "anthropic:c")
    assert chosen(spec, "anthropic:c", Outages()) == ("anthropic:c", "")
    assert chosen(spec, "openai:gone", Outages()) == ("openai:a", "openai:b")


def test_a_worker_requires_the_keys_of_its_agents_models(settings: Settings) -> None:
    registry = Registry(agents={"asker": replace(_agent(_echo), models=("openai:a",))})
    require_models(registry)  # every agent has a script
    settings.ABEYANCE_MODEL = "anthropic:c"
    told = "agent asker: models: openai:a: OPENAI_API_KEY must be set, or OPENAI_API_KEY_FILE"
    with pytest.raises(RegistryError, match=told):
        require_models(registry)
    settings.OPENAI_API_KEY = "x"
    require_models(registry)


@pytest.mark.parametrize(
    ("models", "told"),
    [
        (("acme:large",), "models: acme:large: ABEYANCE_PROVIDER_ACME_URL must be set"),
        (("vllm:llama",), "models: vllm:llama: ABEYANCE_PROVIDER_VLLM_URL must be set"),
        (
            ("gemini:x",),
            "ABEYANCE_PROVIDER_GEMINI_KEY must be set, or ABEYANCE_PROVIDER_GEMINI_KEY_FILE",
        ),
        ((), "model: it has no script, names no model, and ABEYANCE_MODEL is scripted"),
    ],
)
def test_an_agent_without_a_model_to_ask_is_found(models: tuple[str, ...], told: str) -> None:
    registry = Registry(agents={"asker": replace(_agent(None), models=models)})
    (lack,) = lacking(registry)
    assert lack.startswith("agent asker: ")
    assert told in lack


def test_an_agent_that_names_no_model_has_the_default_one(settings: Settings) -> None:
    settings.ABEYANCE_MODEL = "ollama:a"
    assert chosen(_agent(None), "", Outages()) == ("ollama:a", "")
    assert [*lacking(Registry(agents={"asker": _agent(None)}))] == []


def test_an_agent_without_a_script_calls_its_models(settings: Settings) -> None:
    assert settings.ABEYANCE_MODEL == "scripted"
    assert chosen(replace(_agent(None), models=("ollama:a",)), "", Outages()) == ("ollama:a", "")
    scripted = chosen(replace(_agent(_echo), models=("ollama:a",)), "", Outages())
    assert scripted[0].startswith("scripted:")


def test_an_outage_is_remembered_for_a_while(settings: Settings) -> None:
    settings.ABEYANCE_MODEL = "openai:a,openai:b,anthropic:c"
    now = [0.0]
    spec, outages = _agent(_echo), Outages(clock=lambda: now[0])
    for now[0] in (0.0, REMEMBERED / 2):  # the attempts at the first are used up, twice
        chosen(spec, "openai:b", outages)
    assert chosen(spec, "", outages) == ("openai:b", "anthropic:c")
    now[0] = REMEMBERED
    assert chosen(spec, "", outages)[0] == "openai:a"  # one call tries it
    assert chosen(spec, "", outages)[0] == "openai:b"
    outages.end("openai:a")
    assert chosen(spec, "", outages)[0] == "openai:a"


def test_where_all_are_out_the_first_is_asked(settings: Settings) -> None:
    settings.ABEYANCE_MODEL = "openai:a,openai:b,openai:c"
    spec, outages = _agent(_echo), Outages(clock=lambda: 0.0)
    for model in ("openai:b", "openai:c"):
        chosen(spec, model, outages)
    outages.begin("openai:c")
    assert chosen(spec, "", outages) == ("openai:a", "openai:b")

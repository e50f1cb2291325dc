"""Model calls: the frame's messages in, an answer or a fault out, and what the answer costs."""

import json
import queue
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, cast

import pytest
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)
from pydantic_ai.models.function import AgentInfo
from pydantic_ai.usage import RequestUsage
from pytest_django import Settings

from agents.effect_handler import AgentEffects
from agents.errors import RegistryError
from agents.llm import event_loop, providers
from agents.llm.messages import to_provider
from agents.llm.providers import (
    REMEMBERED,
    Outages,
    choose_models,
    complete_usage,
    list_lacking_settings,
    require_models,
)
from agents.llm.replies import convert_provider_reply
from agents.sdk import Budget, tool
from agents.sdk.scripts import call, say, script, together
from agents.sdk.spec import AgentSpec
from runtime.core.run.events import Proposal
from runtime.core.values import budgets
from runtime.core.values.budgets import Rates
from runtime.core.values.json_values import file_value
from tests.support.files import PNG
from tests.support.people import until
from tests.support.specs import Frame, Question, handler_of, registry_of, spec_of

Model = Callable[[list[ModelMessage], AgentInfo], ModelResponse]
counter = spec_of("counter", budget=Budget(turns=5, usd="1.50", seconds=60))
DEAREST = Rates(input=2_500_000, output=10_000_000)


@tool()
def look_up(word: str) -> str:
    """Looks a word up."""
    return word


_echo = script(lambda turn: say(turn.input["text"]))


def _agent(model: Model | None, models: tuple[str, ...] = ()) -> AgentSpec:
    helper = spec_of("helper", input=Question, model=_echo)
    parts = {"instructions": "Ask well.", "tools": [look_up], "subagents": [helper]}
    return replace(spec_of("asker", input=Question, model=model, **parts), models=models)


def _frame(model: Model) -> Frame:
    return Frame(AgentEffects(registry_of(_agent(model))), "asker", {"text": "Zoë?"})


def _told(frame: Frame) -> list[ModelMessage]:
    asker = frame.handler.registry.get("asker")
    return to_provider(asker, tuple(frame.messages), calls=frame.calls)


def test_a_model_gets_the_conversation_and_its_answer_is_read() -> None:
    reply = ModelResponse(
        parts=[
            ThinkingPart(content="hm", signature="s1gn3d", provider_name="acme"),
            ToolCallPart(tool_name="look_up", args='{"word": "a"}', tool_call_id="p-7"),
            TextPart(content="Let me see."),
            ToolCallPart(tool_name="helper", args={"text": "b"}, tool_call_id="p-3"),
        ],
        provider_response_id="r-1",
    )
    replies = [reply, say("done")]
    seen: list[Any] = []
    infos: list[AgentInfo] = []

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen[:] = messages
        infos.append(info)
        return replies.pop(0)

    frame = _frame(model)
    answer = frame.ask()
    assert [part.content for part in seen[0].parts] == ['{"text": "Zoë?"}']
    assert infos[0].instructions == "Ask well."
    tools = {one.name: one.parameters_json_schema for one in infos[0].function_tools}
    assert {name: schema["required"] for name, schema in tools.items()} == {
        "look_up": ["word"],
        "helper": ["text"],
    }
    assert answer.text == "Let me see."
    assert answer.calls == (
        Proposal(tool="look_up", args={"word": "a"}),
        Proposal(tool="helper", args={"text": "b"}),
    )
    assert set(answer.usage) == {"input_tokens", "output_tokens"}
    assert all(count > 0 for count in answer.usage.values())
    frame.settle(("returned", {"is": 1}), ("failed", "no such word"))
    frame.messages = json.loads(json.dumps(frame.messages))  # as the journal gives it back
    frame.ask()
    _, back, results = seen
    assert (back.parts, back.provider_response_id) == (reply.parts, "r-1")
    assert [(part.tool_call_id, part.outcome, part.content) for part in results.parts] == [
        ("p-7", "success", {"is": 1}),
        ("p-3", "failed", "no such word"),
    ]


def test_the_model_looks_at_a_picture_that_a_tool_returned() -> None:
    frame = _frame(lambda *_: together(call("look_up", word="a"), call("look_up", word="b")))
    frame.ask()
    no_png = {"media_type": "image/png", "base64": "PGI+"}
    frame.settle(("returned", file_value("image/png", PNG)), ("returned", no_png))
    picture, other = cast("list[Any]", _told(frame)[-1].parts)
    assert picture.content == [
        f"image/png, {len(PNG)} bytes",
        BinaryContent(data=PNG, media_type="image/png"),
    ]
    assert other.content == no_png


@pytest.mark.parametrize(
    ("verdict", "outcome", "told", "words"),
    [
        ("", ("denied", "Not\n <ticket 7> & “Bea”"), "denied", "A person denied this call"),
        ("", ("refused", "arguments.word: Field required"), "failed", ""),
        ("expire", ("denied", "Nobody decided."), "denied", "its approval expired. Nobody"),
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
    part: Any = _told(frame)[-1].parts[0]
    assert (part.part_kind, part.outcome) == ("tool-return", told)
    assert words in part.content
    assert ("A person denied" in part.content) == (words == "A person denied this call")
    assert part.content.endswith(outcome[1])


def test_the_model_is_told_that_a_person_reported_a_result() -> None:
    model = script(lambda turn: say(str([(one.content, one.reported) for one in turn.results])))
    frame = _frame(lambda *_: together(call("look_up", word="a"), call("look_up", word="b")))
    frame.ask()
    frame.settle(("returned", {"id": 1}), ("returned", {"id": 1}))
    frame.messages[-1]["results"][0]["reported_by"] = "bea"
    conversation = _told(frame)
    reported, returned = cast("list[Any]", conversation[-1].parts)
    assert str(reported.content).startswith("A person reported this result")
    assert str(reported.content).endswith('{"id": 1}')
    assert (reported.outcome, returned.content) == ("success", {"id": 1})
    frame.messages[-1]["results"][0]["answered"] = True
    given, _ = cast("list[Any]", _told(frame)[-1].parts)
    assert str(given.content).startswith("This call was not made. A person gave this result")
    frame.messages[-1]["results"][0]["reported_by"] = ""  # as the policy gave it
    by_rule, _ = cast("list[Any]", _told(frame)[-1].parts)
    assert str(by_rule.content).startswith("This call was not made. No person decided in time")
    by_policy = model(_told(frame), cast("AgentInfo", None))
    heard = model(conversation, cast("AgentInfo", None))  # scripts do not use it
    assert by_policy.parts == heard.parts
    assert heard.parts == [TextPart(content="[({'id': 1}, True), ({'id': 1}, False)]")]


@pytest.mark.parametrize("args", ["{", '{"word": NaN}', "[" * 100_000, '"word"', None, "", {}])
def test_arguments_that_are_no_json_object_stay_unchanged(args: Any) -> None:
    frame = _frame(lambda *_: ModelResponse(parts=[ToolCallPart(tool_name="look_up", args=args)]))
    (proposal,) = frame.ask().calls
    assert (not isinstance(proposal.args, dict)) if args else (proposal.args == {})


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
    assert fault in frame.fault().error


def test_model_calls_that_wait_share_one_thread() -> None:
    waiting: list[event_loop.Stop] = []
    ended: queue.SimpleQueue[str] = queue.SimpleQueue()

    async def call(stop: event_loop.Stop) -> None:
        waiting.append(stop)
        await stop
        ended.put(threading.current_thread().name)

    with ThreadPoolExecutor(20) as pool:
        ends = list(pool.map(lambda _: event_loop.start_call(call), range(300)))
    until(lambda: len(waiting) == 300, "every call to be made")
    assert [t.name for t in threading.enumerate()].count("models") == 1
    for end in ends:
        end()
    assert {ended.get(timeout=30) for _ in ends} == {"models"}


def test_a_worker_requires_the_keys_of_its_agents_models(settings: Settings) -> None:
    registry = registry_of(_agent(_echo, ("openai:a",)))
    require_models(registry)  # every agent has a script
    settings.SIGNOFF_MODEL = "anthropic:c"
    told = "agent asker: models: openai:a: OPENAI_API_KEY must be set, or OPENAI_API_KEY_FILE"
    with pytest.raises(RegistryError, match=told):
        require_models(registry)
    settings.OPENAI_API_KEY = "x"
    require_models(registry)
    settings.SIGNOFF_MODEL = "ollama:a"
    require_models(registry_of(_agent(None)))  # it has the default model


@pytest.mark.parametrize(
    ("models", "told"),
    [
        (("acme:large",), "models: acme:large: SIGNOFF_PROVIDER_ACME_URL must be set"),
        (("vllm:llama",), "models: vllm:llama: SIGNOFF_PROVIDER_VLLM_URL must be set"),
        (("gemini:x",), "gemini:x: SIGNOFF_PROVIDER_GEMINI_KEY must be set, or SIGNOFF"),
        ((), "model: it has no script, names no model, and SIGNOFF_MODEL is scripted"),
    ],
)
def test_an_agent_without_a_model_to_ask_is_found(models: tuple[str, ...], told: str) -> None:
    (lack,) = list_lacking_settings(registry_of(_agent(None, models)))
    assert lack.startswith("agent asker: ")
    assert told in lack


def test_the_model_to_ask_is_the_wanted_one_if_it_is_configured(settings: Settings) -> None:
    three, script = "openai:a,openai:b,anthropic:c", _agent(_echo).model_name
    cases: list[tuple[str, Model | None, tuple[str, ...], str, tuple[str, str]]] = [
        (three, _echo, (), "", ("openai:a", "openai:b")),
        (three, _echo, (), "openai:b", ("openai:b", "anthropic:c")),
        (three, _echo, (), "anthropic:c", ("anthropic:c", "")),
        (three, _echo, (), "openai:gone", ("openai:a", "openai:b")),
        ("openai:a", _echo, ("openai:mine",), "", ("openai:mine", "")),
        ("ollama:a", None, (), "", ("ollama:a", "")),
        ("scripted", None, ("ollama:a",), "", ("ollama:a", "")),
        ("scripted", _echo, ("ollama:a",), "", (script, "")),
    ]
    for settings.SIGNOFF_MODEL, model, own, wanted, asked in cases:
        assert choose_models(_agent(model, own), wanted, Outages()) == asked


def test_an_outage_is_remembered_for_a_while(settings: Settings) -> None:
    settings.SIGNOFF_MODEL = "openai:a,openai:b,openai:c"
    now = [0.0]
    spec, outages = _agent(_echo), Outages(clock=lambda: now[0])
    for now[0] in (0.0, REMEMBERED / 2):  # the attempts at the first are used up, twice
        choose_models(spec, "openai:b", outages)
    assert choose_models(spec, "", outages) == ("openai:b", "openai:c")
    now[0] = REMEMBERED
    assert choose_models(spec, "", outages)[0] == "openai:a"  # one call tries it
    assert choose_models(spec, "", outages)[0] == "openai:b"
    outages.end("openai:a")
    assert choose_models(spec, "", outages)[0] == "openai:a"
    for model in ("openai:b", "openai:c"):
        choose_models(spec, model, outages)
    outages.begin("openai:c")
    assert choose_models(spec, "", outages)[0] == "openai:a"  # all are out


def cost(model: str, *, given: int, said: int = 0, cached: int = 0) -> int | None:
    reply = ModelResponse(
        parts=[TextPart(content="done")],
        usage=RequestUsage(input_tokens=given, output_tokens=said, cache_read_tokens=cached),
        model_name=model,
        provider_name="openai",
    )
    return convert_provider_reply(counter, reply).cost


def test_an_agents_budget_and_current_rates_are_frozen(settings: Settings) -> None:
    handler = handler_of(counter, spec_of("other", budget=Budget()))
    facts = handler.agent("counter")
    assert facts.budget == budgets.BudgetLimits(turns=5, micros=1_500_000, seconds=60)
    assert handler.agent("other").budget is None
    assert facts.rates == Rates(input=0, output=0)  # a script costs nothing
    assert convert_provider_reply(counter, say("done"), model=counter.model_name).cost == 0
    settings.SIGNOFF_MODEL = "openai:gpt-4o"
    assert handler.agent("counter").rates == DEAREST


def test_a_providers_price_comes_from_the_bundled_list(settings: Settings) -> None:
    settings.SIGNOFF_MODEL = "openai:gpt-4o"
    assert cost("gpt-4o-2024-08-06", given=1_000, said=100) == 2_500 + 1_000
    assert cost("gpt-4o", given=1_000, said=100, cached=1_000) == 1_250 + 1_000
    assert cost("gpt-4o-mini", given=1) == 1  # a part of a millionth counts as a whole one
    assert cost("our-own-llama", given=9) is None


def test_the_dearest_of_several_models_counts(settings: Settings) -> None:
    settings.SIGNOFF_MODEL = "openai:gpt-4o-mini,openai:gpt-4o"
    assert providers.find_rates(counter) == DEAREST
    settings.SIGNOFF_MODEL = "openai:gpt-4o,openai:our-own-llama"
    assert providers.find_rates(counter) is None


@pytest.mark.parametrize(
    "usage",
    [
        RequestUsage(input_tokens=10**12, output_tokens=1),
        RequestUsage(input_tokens=1_000, output_tokens=1, cache_read_tokens=10**12),
        RequestUsage(input_tokens=1_000, output_tokens=1, cache_write_tokens=-1),
    ],
)
def test_an_implausible_count_is_priced_by_its_estimate(
    settings: Settings, usage: RequestUsage
) -> None:
    settings.SIGNOFF_MODEL = "openai:gpt-4o"
    parts = [TextPart(content="done")]
    reply = ModelResponse(parts=parts, usage=usage, model_name="gpt-4o", provider_name="openai")
    answer = convert_provider_reply(counter, replace(reply, usage=complete_usage(reply, 2_000)))
    assert (answer.cost, answer.usage["estimated_tokens"]) == (5_000 + 10, 2_000)

"""One model call through the real client: requests to each kind of provider, and what its mistakes are called."""

import asyncio
import gc
import json
import queue
import socket
from collections.abc import Callable
from dataclasses import replace
from types import AsyncGeneratorType, CoroutineType
from typing import Any

import pytest
from openai import AsyncOpenAI
from pydantic_ai.direct import model_request_stream
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIChatModelSettings
from pydantic_ai.providers.openai import OpenAIProvider
from pytest_django import Settings

from agents.effect_handler import AgentEffects
from agents.endpoints import Endpoint, ProviderKind
from agents.llm import event_loop
from agents.llm.clients.openai_client import Client
from agents.llm.messages import build_model_tools, to_provider
from agents.llm.providers import CLIENTS, take_next_client
from agents.registry import Registry
from agents.sdk import scripts, tool
from agents.sdk.scripts import SUM_UP_MEMORY
from runtime.core.values.enums import FailureCause
from runtime.execution.effects.perform import perform
from runtime.keyring import sealing
from runtime.ports.effects import ModelFailure, Outcome
from tests.support.provider.faults import Fault
from tests.support.provider.server import KEY, Provider
from tests.support.specs import CREATE, MEMORY, MEMORY_LINES, NEWCOMER, Frame, registry_of

# Name, kind, prefix of its paths, a model, the name of its limit of a reply, and whether requests demand strict
# schemas: for a tool with patterns, and for one without.
KINDS = [
    ("team", ProviderKind.OPENAI, "/v1", "qwen/qwen3", "max_tokens", [True, True]),
    ("azure", ProviderKind.AZURE, "/openai/v1", "gpt-4.1", "max_completion_tokens", [None, True]),
    ("foundry", ProviderKind.AZURE, "/openai/v1", "mistral-large", "max_tokens", [None, True]),
    (
        "bedrock",
        ProviderKind.BEDROCK,
        "/openai/v1",
        "openai.o",
        "max_completion_tokens",
        [None, True],
    ),
    ("gemini", ProviderKind.GEMINI, "/v1beta/openai", "gemini-3", "max_tokens", [None, None]),
    ("ollama", ProviderKind.OLLAMA, "/v1", "org/llama:7b", "max_tokens", [None, None]),
    ("our_gpu", ProviderKind.VLLM, "/v1", "org/llama:7b", "max_tokens", [True, True]),
]
SETUP, FROM_PROVIDER = FailureCause.SETUP, FailureCause.PROVIDER
PAGE = "<title>Sign in</title>"
GEMINI = {
    "code": 400,
    "message": "API key not valid.",
    "details": [{"reason": "API_KEY_INVALID", "domain": "googleapis.com"}],
}
OWN = OpenAIChatModelSettings(temperature=0.5, extra_body={"seed": 7, "mine": [1]})


@tool(effect="read")
def note(text: str) -> str:
    """Keep a note."""
    return text


MakeFrame = Callable[..., Frame]


@pytest.fixture
def at(hr: Registry, provider: Provider, settings: Settings) -> MakeFrame:
    """Frames whose model is at an endpoint of that kind."""

    def frame(
        name: str = "our_gpu",
        kind: ProviderKind = ProviderKind.VLLM,
        model: str = "model",
        **given: Any,
    ) -> Frame:
        endpoint = Endpoint(name=name, kind=kind, url=provider.url, **{"key": KEY, **given})
        settings.SIGNOFF_PROVIDERS = {name: endpoint}
        agent = hr.agents["hr_access_bundle"]
        asks: dict[str, Any] = {
            "model": None,
            "models": (f"{name}:{model}",),
            "tools": (*agent.tools, note),
        }
        spec = replace(agent, temperature=0.5, max_tokens=100, **asks)
        return Frame(AgentEffects(registry_of(spec)), spec.name, NEWCOMER)

    return frame


@pytest.mark.parametrize("row", KINDS, ids=lambda row: row[0])
def test_a_request_goes_out_as_the_provider_wants_it(
    provider: Provider, at: MakeFrame, row: tuple[Any, ...]
) -> None:
    name, kind, provider.root, model, limit, strict = row
    answer = at(name, kind, model).ask()
    assert [call.tool for call in answer.calls] == ["create_account"]
    assert answer.model == f"{name}:{model}"
    (body,) = provider.bodies
    assert (body["model"], body["temperature"], body[limit]) == (model, 0.5, 100)
    first, *_, last = (one["function"].get("strict") for one in body["tools"])
    assert [first, last] == strict


@pytest.mark.parametrize("row", KINDS, ids=lambda row: row[0])
def test_a_question_goes_out_after_results_of_all_calls_and_allows_none(
    provider: Provider, at: MakeFrame, row: tuple[Any, ...]
) -> None:
    name, kind, provider.root, model, *_ = row
    frame = at(name, kind, model)
    frame.ask()
    perform(frame.handler, frame.question("Why her?"))
    body = provider.bodies[-1]
    roles = [one["role"] for one in body["messages"]]
    assert roles[-3:] == ["assistant", "tool", "user"]
    assert (body["tool_choice"], len(body["tools"])) == ("none", len(provider.bodies[0]["tools"]))
    assert body["messages"][-1]["content"].endswith("bea asks: Why her?")


def test_a_memory_goes_out_before_the_input(provider: Provider, at: MakeFrame) -> None:
    frame = at()
    sealed = sealing.seal_held_text("This is not for ada.")
    frame.messages[0]["memory"] = (*MEMORY, {**MEMORY[0], "text": sealed})
    assert [call.tool for call in frame.ask().calls] == ["create_account"]
    told, given = [
        one["content"] for one in provider.bodies[-1]["messages"] if one["role"] == "user"
    ]
    assert told.startswith(scripts.MEMORY + "\n".join(MEMORY_LINES))
    assert json.loads(told.splitlines()[-1])["text"] == sealed
    assert json.loads(given) == NEWCOMER


@pytest.mark.parametrize(("name", "kind"), [(name, kind) for name, kind, *_ in KINDS])
def test_a_wrong_key_or_address_is_a_matter_of_setup(
    provider: Provider,
    at: MakeFrame,
    name: str,
    kind: ProviderKind,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for key, root, said in (
        ("sk-canary", "/v1", f"the key for {name}:model was refused (status 401)"),
        (KEY, "/elsewhere", "look at the name of the model and the provider's address"),
    ):
        frame = at(name, kind, key=key)
        provider.root = root
        fault = frame.fault()
        assert (fault.cause, fault.retryable) == (SETUP, True)
        assert said in fault.error
        assert "canary" not in fault.error + caplog.text


def test_an_own_server_needs_no_key(provider: Provider, at: MakeFrame) -> None:
    provider.key = "none"
    assert at(key="").ask().calls


@pytest.mark.parametrize("asks", [True, False])
def test_servers_without_streams_are_understood(
    provider: Provider, at: MakeFrame, asks: bool
) -> None:
    provider.streams = False
    frame = at(streams=asks)
    answer = frame.ask()
    assert [(call.tool, call.args) for call in answer.calls] == [(CREATE.tool, CREATE.args)]
    assert answer.usage == {"input_tokens": 300, "output_tokens": 7}
    (body,) = provider.bodies
    assert (body["stream"], "stream_options" in body) == (asks, asks)
    frame.settle(("returned", {"id": "7"}))
    both = [call.tool for call in frame.ask().calls]
    assert both == ["set_privileges", "grant_application_access"]


def test_a_refusal_says_what_is_wrong(provider: Provider, at: MakeFrame) -> None:
    refusals: list[tuple[int, Any, FailureCause, str, str]] = [
        (200, {"message": "out of memory"}, FROM_PROVIDER, "", "out of memory"),
        (403, {"message": "No.", "code": "insufficient_quota"}, SETUP, "is used up", "No."),
        (403, {"message": "No.", "code": "model_not_found"}, SETUP, "there is no our_gpu", "No."),
        (400, GEMINI, SETUP, "the key for our_gpu:model was refused", ""),
        (200, PAGE, SETUP, "look at the provider's address", ""),
    ]
    for status, document, cause, error, said in refusals:
        refusal = document if document is PAGE else {"error": document}
        provider.refusal = (status, [refusal] if document is GEMINI else refusal)
        fault = at().fault()
        assert (fault.cause, fault.retryable, fault.provider_text) == (cause, True, said)
        assert error in fault.error


def test_a_reply_ends_the_memory_of_an_outage(at: MakeFrame) -> None:
    ours = at()
    outages, both = ours.handler.outages, ("our_gpu:model", "our_gpu:second")
    outages.begin("our_gpu:model")
    assert outages.choose(both) == "our_gpu:second"
    ours.ask()
    assert outages.choose(both) == "our_gpu:model"


@pytest.mark.parametrize(
    ("fault", "error", "after"),
    [
        (Fault.RATE_LIMIT, "asks for fewer requests (status 429)", 1.0),
        (Fault.SERVER_ERROR, "is in trouble (status 500): the provider is at fault", None),
        (Fault.CUT, "the connection to openai:loopback failed", None),
        (Fault.SHORT, "the reply of openai:loopback broke off", None),
        (Fault.MALFORMED_JSON, "the provider is at fault", None),
    ],
)
def test_the_engine_and_not_the_client_retries_server_errors(
    provider: Provider, frame: Frame, fault: Fault, error: str, after: float | None
) -> None:
    perform(frame.handler, frame.request())  # do all imports and caching first
    gc.disable()
    gc.freeze()  # or each collection would go through all objects of this process
    try:
        provider.faults.append(fault)
        found = frame.fault()
        assert error in found.error
        assert (found.retryable, found.retry_after) == (True, after)
        assert len(provider.bodies) == 2
        for _ in range(2):  # until the models' loop has finished its current callbacks
            loop = event_loop._ensure_loop()
            asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(60)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = [one for one in gc.garbage if isinstance(one, AsyncGeneratorType | CoroutineType)]
        assert left == []
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.unfreeze()
        gc.enable()
    answer = frame.ask()
    assert [call.tool for call in answer.calls] == ["create_account"]
    assert answer.usage == {"input_tokens": 300, "output_tokens": 7}


def test_a_summary_of_the_memory_is_requested_within_its_tokens(
    provider: Provider, frame: Frame
) -> None:
    frame.messages[0]["memory"] = MEMORY
    failure = perform(frame.handler, replace(frame.request(), summary=True, memory_tokens=200))
    assert isinstance(failure, ModelFailure)
    assert "replied without text" in failure.error  # the script calls a tool
    body = provider.bodies[-1]
    assert body["messages"][-1]["content"] == f"{SUM_UP_MEMORY}200"
    assert 200 in (body.get("max_tokens"), body.get("max_completion_tokens"))


@pytest.mark.parametrize("fault", [Fault.TRICKLE, Fault.HALF_OPEN])
def test_an_endless_reply_is_cut_and_kept(provider: Provider, frame: Frame, fault: Fault) -> None:
    provider.faults.append(fault)
    found = frame.fault(2.0)
    assert found.error == "openai:loopback did not answer within 2 s"
    assert (found.retryable, found.cause) == (True, FailureCause.TIME)
    assert found.model == "openai:loopback"
    assert ("drip drip" if fault is Fault.TRICKLE else "and then") in found.partial
    assert found.tokens == -(-len(found.partial) // 4)
    assert provider.left.wait(60)


@pytest.mark.parametrize("fault", [Fault.TRICKLE, Fault.HALF_OPEN])
def test_an_ended_call_is_over_at_once(provider: Provider, frame: Frame, fault: Fault) -> None:
    provider.faults.append(fault)
    came: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
    end = frame.handler.start_model_call(frame.request(deadline=60.0), came.put)
    assert provider.speaking.wait(60)
    end()
    found = came.get(timeout=60)
    assert isinstance(found, ModelFailure)
    assert (found.retryable, found.model) == (False, "openai:loopback")
    assert "drip" in found.partial or fault is Fault.HALF_OPEN
    assert provider.left.wait(60)
    end()  # once more changes nothing
    assert came.empty()


@pytest.mark.parametrize("listens", [True, False])
def test_a_provider_that_is_away_is_worth_another_attempt(
    provider: Provider, frame: Frame, settings: Settings, listens: bool
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings.OPENAI_BASE_URL = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        if not listens:
            silent.close()
        assert frame.fault(0.5).retryable


def test_the_text_is_kept_without_keys(hr: Registry, provider: Provider, frame: Frame) -> None:
    told = f"max_tokens is too large; asked with {KEY}"
    provider.refusal = (400, {"error": {"message": told, "code": "bad_value"}})
    fault = frame.fault()
    assert "rejected the request (status 400), code bad_value" in fault.error
    assert (fault.provider_text, fault.retryable) == (
        "max_tokens is too large; asked with ••••",
        False,
    )
    agent = hr.agents["account_agent"]
    tools = (replace(agent.tools[0], secret_result=True),)
    secretive = Registry(agents={agent.name: replace(agent, tools=tools)})
    fault = Frame(AgentEffects(secretive), agent.name, NEWCOMER).fault()
    assert (fault.cause, fault.provider_text) == (FailureCause.REQUEST, "")
    provider.refusal = (401, {"error": {"message": f"wrong: {KEY[:8]}"}})
    assert frame.fault().provider_text == ""


@pytest.mark.parametrize(
    ("offers", "asked"),
    [(True, OpenAIChatModelSettings()), (False, OpenAIChatModelSettings()), (True, OWN)],
    ids=["tools", "no tools", "settings and a body of their own"],
)
def test_a_request_is_the_one_that_the_client_itself_would_send(
    hr: Registry, frame: Frame, provider: Provider, offers: bool, asked: OpenAIChatModelSettings
) -> None:
    frame.ask()
    frame.settle(("denied", "not this one"))
    agent = hr.agents["account_agent"]
    conversation = to_provider(agent, tuple(frame.messages), calls=frame.calls)
    tools = build_model_tools(agent) if offers else ModelRequestParameters()

    async def ask(kind: type[AsyncOpenAI]) -> None:
        client = kind(api_key=KEY, base_url=provider.url)
        model = OpenAIChatModel("loopback", provider=OpenAIProvider(openai_client=client))
        request = model_request_stream(
            model, conversation, model_request_parameters=tools, model_settings=asked
        )
        async with client, request as stream:
            async for _ in stream:
                pass

    for kind in (AsyncOpenAI, Client):
        asyncio.run(ask(kind))
    *_, theirs, ours = provider.bodies
    assert ours == theirs
    assert [message["role"] for message in ours["messages"]][-3:] == ["user", "assistant", "tool"]
    assert bool(ours.get("tools")) is offers


def test_calls_are_shared_out_among_a_few_clients(provider: Provider) -> None:
    models: list[Any] = [take_next_client("openai:loopback") for _ in range(2 * CLIENTS)]
    assert len({id(model.client) for model in models}) == CLIENTS
    assert models[:CLIENTS] == models[CLIENTS:]

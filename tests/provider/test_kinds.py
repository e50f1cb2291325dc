"""Each kind of provider with OpenAI's protocol: path, key, model and settings of requests, and refusals."""

from dataclasses import replace
from typing import Any

import pytest
from pytest_django import Settings

from agents.effect_handler import AgentEffects
from agents.endpoints import Endpoint, Kind
from agents.registry import Registry
from agents.sdk import tool
from runtime.core.enums import FailureCause
from tests.support.frames import Frame
from tests.support.provider.server import KEY, Provider
from tests.support.specs import CREATE, NEWCOMER, registry_of

# Name, kind, prefix of its paths, a model, the name of its limit of a reply, and whether requests demand strict
# schemas: for a tool with patterns, and for one without.
KINDS = [
    ("team", Kind.OPENAI, "/v1", "qwen/qwen3", "max_tokens", [True, True]),
    ("azure", Kind.AZURE, "/openai/v1", "gpt-4.1", "max_completion_tokens", [None, True]),
    ("foundry", Kind.AZURE, "/openai/v1", "mistral-large", "max_tokens", [None, True]),
    ("bedrock", Kind.BEDROCK, "/openai/v1", "openai.o", "max_completion_tokens", [None, True]),
    ("gemini", Kind.GEMINI, "/v1beta/openai", "gemini-3", "max_tokens", [None, None]),
    ("ollama", Kind.OLLAMA, "/v1", "org/llama:7b", "max_tokens", [None, None]),
    ("our_gpu", Kind.VLLM, "/v1", "org/llama:7b", "max_tokens", [True, True]),
]


@tool(effect="read")
def note(text: str) -> str:
    """Keep a note."""
    return text


def _frame(hr: Registry, model: str, agent: str = "account_agent", **changes: Any) -> Frame:
    spec = replace(hr.agents[agent], model=None, models=(model,), **changes)
    return Frame(AgentEffects(registry_of(spec)), agent, NEWCOMER)


@pytest.fixture
def ours(hr: Registry, provider: Provider, settings: Settings) -> Frame:
    """A model of a server of one's own."""
    _name(settings, provider, "our_gpu", Kind.VLLM)
    return _frame(hr, "our_gpu:model")


def _name(settings: Settings, provider: Provider, name: str, kind: Kind, key: str = KEY) -> None:
    settings.ABEYANCE_PROVIDERS = {name: Endpoint(name=name, kind=kind, url=provider.url, key=key)}


@pytest.mark.parametrize(("name", "kind", "root", "model", "limit", "strict"), KINDS)
def test_a_request_goes_out_as_the_provider_wants_it(
    hr: Registry,
    provider: Provider,
    settings: Settings,
    name: str,
    kind: Kind,
    root: str,
    model: str,
    limit: str,
    strict: list[bool | None],
) -> None:
    provider.root = root
    _name(settings, provider, name, kind)
    tools = (hr.agents["account_agent"].tools[0], note)
    frame = _frame(hr, f"{name}:{model}", temperature=0.5, max_tokens=100, tools=tools)
    answer = frame.ask()
    assert [call.tool for call in answer.calls] == ["create_account"]
    assert answer.model == f"{name}:{model}"
    (body,) = provider.bodies
    assert (body["model"], body["temperature"], body[limit]) == (model, 0.5, 100)
    assert [one["function"].get("strict") for one in body["tools"]] == strict


@pytest.mark.parametrize(("name", "kind"), [(name, kind) for name, kind, *_ in KINDS])
@pytest.mark.parametrize("wrong", ["key", "address"])
def test_a_wrong_key_or_address_is_a_matter_of_setup(
    hr: Registry, provider: Provider, settings: Settings, name: str, kind: Kind, wrong: str
) -> None:
    _name(settings, provider, name, kind, key="sk-canary" if wrong == "key" else KEY)
    provider.root = "/v1" if wrong == "key" else "/elsewhere"
    fault = _frame(hr, f"{name}:model").fault()
    assert (fault.cause, fault.retryable) == (FailureCause.SETUP, True)
    assert "canary" not in fault.error


def test_a_key_that_gemini_refuses_with_400_is_a_setup_failure(
    hr: Registry, provider: Provider, settings: Settings
) -> None:
    details = [{"reason": "API_KEY_INVALID", "domain": "googleapis.com"}]
    said = {"code": 400, "message": "API key not valid.", "details": details}
    provider.refusal = (400, [{"error": said}])
    _name(settings, provider, "gemini", Kind.GEMINI)
    fault = _frame(hr, "gemini:model").fault()
    assert (fault.cause, fault.retryable) == (FailureCause.SETUP, True)


def test_a_server_of_one_s_own_needs_no_key(
    hr: Registry, provider: Provider, settings: Settings
) -> None:
    provider.key = "none"
    _name(settings, provider, "our_gpu", Kind.VLLM, key="")
    assert _frame(hr, "our_gpu:model").ask().calls


@pytest.mark.parametrize("asks", [True, False])
def test_a_server_that_does_not_stream_is_understood(
    ours: Frame, provider: Provider, settings: Settings, asks: bool
) -> None:
    if not asks:
        endpoint = settings.ABEYANCE_PROVIDERS["our_gpu"]
        settings.ABEYANCE_PROVIDERS = {"our_gpu": replace(endpoint, streams=False)}
    provider.streams = False
    answer = ours.ask()
    assert [(call.tool, call.args) for call in answer.calls] == [(CREATE.tool, CREATE.args)]
    assert answer.usage == {"input_tokens": 11, "output_tokens": 7}
    (body,) = provider.bodies
    assert (body["stream"], "stream_options" in body) == (asks, asks)


def test_calls_of_an_answer_in_one_piece_are_told_apart(
    hr: Registry, ours: Frame, provider: Provider
) -> None:
    provider.streams = False
    frame = _frame(hr, "our_gpu:model", "hr_access_bundle")
    frame.ask()
    frame.settle(("returned", {"id": "7"}))
    answer = frame.ask()
    assert [call.tool for call in answer.calls] == ["set_privileges", "grant_application_access"]


def test_an_error_with_status_200_is_no_answer(ours: Frame, provider: Provider) -> None:
    provider.refusal = (200, {"error": {"message": "out of memory"}})
    fault = ours.fault()
    assert (fault.cause, fault.retryable, fault.said) == (
        FailureCause.PROVIDER,
        True,
        "out of memory",
    )


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("insufficient_quota", "the quota of the key for our_gpu:model is used up"),
        ("model_not_found", "there is no our_gpu:model there"),
    ],
)
def test_a_right_key_is_not_called_wrong(
    ours: Frame, provider: Provider, code: str, said: str
) -> None:
    provider.refusal = (403, {"error": {"message": "No.", "code": code}})
    fault = ours.fault()
    assert (said in fault.error, fault.said) == (True, "No.")


def test_a_reply_ends_the_memory_of_an_outage(ours: Frame) -> None:
    outages, both = ours.handler.outages, ("our_gpu:model", "our_gpu:second")
    outages.begin("our_gpu:model")
    assert outages.choose(both) == "our_gpu:second"
    ours.ask()
    assert outages.choose(both) == "our_gpu:model"


def test_a_page_for_people_means_a_wrong_address(ours: Frame, provider: Provider) -> None:
    provider.page = "<title>Sign in</title>"
    fault = ours.fault()
    assert (fault.cause, fault.retryable) == (FailureCause.SETUP, True)
    assert "look at the provider's address" in fault.error

"""Each kind of provider with OpenAI's protocol: path, key, model and settings of requests, and refusals."""

from dataclasses import replace
from typing import Any

import pytest
from pytest_django import Settings

from agents.endpoints import Endpoint, Kind
from agents.handlers import Handler
from agents.registry import Registry
from runtime.core.decisions import Blame
from runtime.performing import perform
from runtime.ports import ModelFault
from tests.agents.frames import Frame
from tests.agents.test_onboarding import CREATE, NEWCOMER
from tests.provider.server import KEY, Provider

# Name, kind, where its paths begin, and what it calls the limit of a reply.
KINDS = [
    ("team", Kind.OPENAI, "/v1", "max_tokens"),
    ("azure", Kind.AZURE, "/openai/v1", "max_completion_tokens"),
    ("bedrock", Kind.BEDROCK, "/openai/v1", "max_completion_tokens"),
    ("gemini", Kind.GEMINI, "/v1beta/openai", "max_tokens"),
    ("ollama", Kind.OLLAMA, "/v1", "max_tokens"),
    ("our_gpu", Kind.VLLM, "/v1", "max_tokens"),
]


def _frame(hr: Registry, model: str, **changes: Any) -> Frame:
    agent = replace(hr.agents["account_agent"], model=None, models=(model,), **changes)
    return Frame(Handler(Registry(agents={agent.name: agent})), agent.name, NEWCOMER)


def _name(settings: Settings, provider: Provider, name: str, kind: Kind, key: str = KEY) -> None:
    settings.ABEYANCE_PROVIDERS = {name: Endpoint(name=name, kind=kind, url=provider.url, key=key)}


@pytest.mark.parametrize(("name", "kind", "root", "limit"), KINDS)
def test_a_request_goes_out_as_the_provider_wants_it(
    hr: Registry,
    provider: Provider,
    settings: Settings,
    name: str,
    kind: Kind,
    root: str,
    limit: str,
) -> None:
    provider.root = root
    _name(settings, provider, name, kind)
    frame = _frame(hr, f"{name}:org/llama:7b", temperature=0.5, max_tokens=100)
    answer = frame.ask()
    assert [call.tool for call in answer.calls] == ["create_account"]
    assert answer.model == f"{name}:org/llama:7b"
    (body,) = provider.bodies
    assert (body["model"], body["temperature"], body[limit]) == ("org/llama:7b", 0.5, 100)


@pytest.mark.parametrize(("name", "kind"), [(name, kind) for name, kind, *_ in KINDS])
@pytest.mark.parametrize("wrong", ["key", "address"])
def test_a_wrong_key_or_address_is_a_matter_of_setup(
    hr: Registry, provider: Provider, settings: Settings, name: str, kind: Kind, wrong: str
) -> None:
    _name(settings, provider, name, kind, key="sk-canary" if wrong == "key" else KEY)
    provider.root = "/v1" if wrong == "key" else "/elsewhere"
    frame = _frame(hr, f"{name}:model")
    fault = perform(frame.handler, frame.request())
    assert isinstance(fault, ModelFault)
    assert (fault.blame, fault.again) == (Blame.SETUP, True)
    assert "canary" not in fault.error


def test_a_key_that_gemini_refuses_with_400_is_not_the_request_s_fault(
    hr: Registry, provider: Provider, settings: Settings
) -> None:
    details = [{"reason": "API_KEY_INVALID", "domain": "googleapis.com"}]
    said = {"code": 400, "message": "API key not valid.", "details": details}
    provider.refusal = (400, [{"error": said}])
    _name(settings, provider, "gemini", Kind.GEMINI)
    frame = _frame(hr, "gemini:model")
    fault = perform(frame.handler, frame.request())
    assert isinstance(fault, ModelFault)
    assert (fault.blame, fault.again) == (Blame.SETUP, True)


def test_a_server_of_one_s_own_needs_no_key(
    hr: Registry, provider: Provider, settings: Settings
) -> None:
    provider.key = "none"
    _name(settings, provider, "our_gpu", Kind.VLLM, key="")
    assert _frame(hr, "our_gpu:model").ask().calls


@pytest.mark.parametrize("asks", [True, False])
def test_a_server_that_does_not_stream_is_understood(
    hr: Registry, provider: Provider, settings: Settings, asks: bool
) -> None:
    _name(settings, provider, "our_gpu", Kind.VLLM)
    if not asks:
        endpoint = settings.ABEYANCE_PROVIDERS["our_gpu"]
        settings.ABEYANCE_PROVIDERS = {"our_gpu": replace(endpoint, streams=False)}
    provider.streams = False
    answer = _frame(hr, "our_gpu:model").ask()
    assert [(call.tool, call.args) for call in answer.calls] == [(CREATE.tool, CREATE.args)]
    assert answer.usage == {"input_tokens": 11, "output_tokens": 7}
    (body,) = provider.bodies
    assert (body["stream"], "stream_options" in body) == (asks, asks)


def test_a_page_for_people_means_a_wrong_address(
    hr: Registry, provider: Provider, settings: Settings
) -> None:
    provider.page = "<title>Sign in</title>"
    _name(settings, provider, "our_gpu", Kind.VLLM)
    frame = _frame(hr, "our_gpu:model")
    fault = perform(frame.handler, frame.request())
    assert isinstance(fault, ModelFault)
    assert (fault.blame, fault.again) == (Blame.SETUP, True)
    assert "look at the provider's address" in fault.error

"""One model call through the real client: what each mistake of a provider is called, and whether to ask again."""

import asyncio
import gc
import queue
import socket
from dataclasses import replace
from types import AsyncGeneratorType, CoroutineType

import pytest
from pytest_django import Settings

from agents.effect_handler import AgentEffects
from agents.llm import event_loop
from agents.registry import Registry
from runtime.core.enums import FailureCause
from runtime.execution.effects.perform import perform
from runtime.ports.effects import ModelAnswer, ModelFailure, Outcome
from tests.support.frames import Frame
from tests.support.provider.faults import Fault
from tests.support.provider.server import KEY, Provider
from tests.support.specs import NEWCOMER


def test_an_answer_has_calls_and_the_provider_s_token_count(
    provider: Provider, frame: Frame
) -> None:
    answer = frame.ask()
    assert [call.tool for call in answer.calls] == ["create_account"]
    assert answer.usage == {"input_tokens": 11, "output_tokens": 7}
    (body,) = provider.bodies
    tools = {tool["function"]["name"] for tool in body["tools"]}
    assert tools == {"create_account", "set_privileges"}


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
    provider.faults.append(fault)
    found = frame.fault()
    assert error in found.error
    assert (found.retryable, found.retry_after) == (True, after)
    assert len(provider.bodies) == 1
    assert isinstance(perform(frame.handler, frame.request()), ModelAnswer)


@pytest.mark.parametrize("fault", [Fault.CUT, Fault.SHORT, Fault.MALFORMED_JSON, Fault.RATE_LIMIT])
def test_a_failed_call_leaves_no_open_stream(
    provider: Provider, frame: Frame, fault: Fault
) -> None:
    perform(frame.handler, frame.request())  # do all imports and caching first
    gc.collect()
    gc.disable()
    try:
        provider.faults.append(fault)
        frame.fault()
        _go_round()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = [one for one in gc.garbage if isinstance(one, AsyncGeneratorType | CoroutineType)]
        assert left == []
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def _go_round() -> None:
    """Wait until the models' loop has finished its current callbacks."""
    for _ in range(2):
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), event_loop._running_loop()).result(60)


@pytest.mark.parametrize("fault", [Fault.TRICKLE, Fault.HALF_OPEN])
def test_an_endless_reply_is_cut_at_the_deadline_and_kept(
    provider: Provider, frame: Frame, fault: Fault
) -> None:
    provider.faults.append(fault)
    found = frame.fault(2.0)
    assert found.error == "openai:loopback did not answer within 2 s"
    assert (found.retryable, found.cause, found.model) == (
        True,
        FailureCause.TIME,
        "openai:loopback",
    )
    assert ("drip drip" if fault is Fault.TRICKLE else "and then") in found.partial
    assert provider.left.wait(60)


@pytest.mark.parametrize("fault", [Fault.TRICKLE, Fault.HALF_OPEN])
def test_a_call_that_is_ended_is_over_at_once_for_both_sides(
    provider: Provider, frame: Frame, fault: Fault
) -> None:
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


def test_a_wrong_key_is_the_key_s_fault_and_is_not_quoted(
    provider: Provider, frame: Frame, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    settings.OPENAI_API_KEY = "sk-canary-1234567890"
    fault = frame.fault()
    assert "the key for openai:loopback was refused (status 401)" in fault.error
    assert fault.cause is FailureCause.SETUP
    assert "canary" not in fault.error + caplog.text


def test_a_wrong_address_is_told_as_such(
    provider: Provider, frame: Frame, settings: Settings
) -> None:
    settings.OPENAI_BASE_URL = f"{provider.url}/elsewhere"
    fault = frame.fault()
    assert "look at the name of the model and the provider's address" in fault.error
    assert fault.cause is FailureCause.SETUP


def test_a_request_the_provider_rejects_is_the_request_s_fault(
    provider: Provider, frame: Frame
) -> None:
    provider.registry = Registry(agents={})
    fault = frame.fault()
    assert "rejected the request (status 400), code bad_request" in fault.error
    assert not fault.retryable


def test_the_providers_text_is_kept_without_keys(
    provider: Provider, frame: Frame, settings: Settings
) -> None:
    told = f"max_tokens is too large; asked with {KEY}"
    provider.refusal = (400, {"error": {"message": told, "code": "bad_value"}})
    fault = frame.fault()
    assert "rejected the request (status 400), code bad_value" in fault.error
    assert fault.said == "max_tokens is too large; asked with ••••"
    provider.refusal = (401, {"error": {"message": f"wrong: {KEY[:8]}"}})
    assert frame.fault().said == ""


def test_no_provider_text_is_kept_for_an_agent_with_secrets(
    provider: Provider, hr: Registry
) -> None:
    agent = hr.agents["account_agent"]
    tools = (replace(agent.tools[0], secret_result=True),)
    secretive = Registry(agents={agent.name: replace(agent, tools=tools)})
    provider.refusal = (400, {"error": {"message": "you sent hunter2"}})
    fault = Frame(AgentEffects(secretive), agent.name, NEWCOMER).fault()
    assert (fault.cause, fault.said) == (FailureCause.REQUEST, "")

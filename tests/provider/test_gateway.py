"""One model call through the real client: what each mistake of a provider is called, and whether to ask again."""

import socket
import time

import pytest
from pytest_django import Settings

from agents.handlers import Handler
from agents.registry import Registry
from runtime.ports import ModelAnswer, ModelFault
from tests.agents.frames import Frame
from tests.agents.test_onboarding import NEWCOMER
from tests.provider.faults import Fault
from tests.provider.server import Provider


@pytest.fixture
def frame(hr: Registry) -> Frame:
    return Frame(Handler(hr), "account_agent", NEWCOMER)


def _fault(frame: Frame, deadline: float = 10.0) -> ModelFault:
    outcome = frame.handler.perform(frame.request(deadline))
    assert isinstance(outcome, ModelFault), outcome
    return outcome


def test_an_answer_has_calls_and_the_provider_s_own_count_of_tokens(
    provider: Provider, frame: Frame
) -> None:
    answer = frame.ask()
    assert [call.tool for call in answer.calls] == ["create_account"]
    assert answer.usage == {"input_tokens": 11, "output_tokens": 7}
    (body,) = provider.bodies
    assert {tool["function"]["name"] for tool in body["tools"]} == {
        "create_account",
        "set_privileges",
    }


@pytest.mark.parametrize(
    ("fault", "error", "after"),
    [
        (Fault.RATE_LIMIT, "asks for fewer requests (status 429)", 1.0),
        (Fault.SERVER_ERROR, "is in trouble (status 500): the provider is at fault", None),
        (Fault.CUT, "the connection to openai:loopback failed", None),
        (Fault.MALFORMED_JSON, "is in trouble: the provider is at fault", None),
    ],
)
def test_a_mistake_of_the_provider_is_worth_another_attempt_and_the_client_makes_none(
    provider: Provider, frame: Frame, fault: Fault, error: str, after: float | None
) -> None:
    provider.faults.append(fault)
    found = _fault(frame)
    assert error in found.error
    assert (found.again, found.after) == (True, after)
    assert len(provider.bodies) == 1
    assert isinstance(frame.handler.perform(frame.request()), ModelAnswer)


def test_a_trickle_is_cut_off_at_the_deadline(provider: Provider, frame: Frame) -> None:
    provider.faults.append(Fault.TRICKLE)
    began = time.monotonic()
    assert _fault(frame, deadline=0.5) == ModelFault(
        error="openai:loopback did not answer within 0.5 s", again=True
    )
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("listens", [True, False])
def test_a_provider_that_is_away_is_worth_another_attempt(
    provider: Provider, frame: Frame, settings: Settings, listens: bool
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings.OPENAI_BASE_URL = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        if not listens:
            silent.close()
        assert _fault(frame, deadline=0.5).again


def test_a_wrong_key_is_the_key_s_fault_and_is_not_quoted(
    provider: Provider, frame: Frame, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    settings.OPENAI_API_KEY = "sk-canary-1234567890"
    fault = _fault(frame)
    assert "the key for openai:loopback was refused (status 401)" in fault.error
    assert not fault.again
    assert "canary" not in fault.error + caplog.text


def test_a_wrong_address_is_told_as_such(
    provider: Provider, frame: Frame, settings: Settings
) -> None:
    settings.OPENAI_BASE_URL = f"{provider.url}/elsewhere"
    fault = _fault(frame)
    assert "ABEYANCE_MODEL and the address" in fault.error
    assert not fault.again


def test_a_request_the_provider_rejects_is_the_request_s_fault(
    provider: Provider, frame: Frame
) -> None:
    provider.registry = Registry(agents={})
    fault = _fault(frame)
    assert "rejected the request (status 400), code bad_request" in fault.error
    assert not fault.again

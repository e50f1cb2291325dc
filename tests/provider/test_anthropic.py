"""One model call through Anthropic's client, whose requests are answered as its API would."""

import json
from base64 import b64encode
from typing import Any

import pytest
from httpx2 import Response
from pytest_django import Settings

from runtime.core.values.enums import FailureCause
from runtime.core.values.json_values import file_value
from runtime.execution.effects.perform import perform
from tests.support.files import PNG
from tests.support.provider.wire import KEY, Wire, anthropic, frame_of, message, use_part
from tests.support.specs import CREATE, MEMORY, MEMORY_LINES, NEWCOMER, Frame

CALL = use_part(CREATE.tool, CREATE.args)
SEND = use_part("send", {"text": "Dear"})


@pytest.fixture(autouse=True)
def installed(wire: Wire, settings: Settings) -> None:
    """Ask the provider of this name that each installation has."""
    settings.SIGNOFF_MODEL, settings.ANTHROPIC_API_KEY = "anthropic:m", wire.key


def test_a_memory_goes_out_before_the_input(wire: Wire, frame: Frame) -> None:
    wire.answers.append(anthropic(CALL))
    frame.messages[0]["memory"] = MEMORY
    frame.ask()
    (message,) = wire.bodies[-1]["messages"]
    told, given = [part["text"] for part in message["content"]]
    assert (message["role"], told.split("\n")[1:], json.loads(given)) == (
        "user",
        MEMORY_LINES,
        NEWCOMER,
    )


@pytest.mark.parametrize(
    ("model", "reply"), [("anthropic:m", anthropic(SEND)), ("plain_claude:m", message(SEND))]
)
def test_a_call_comes_back_as_any_other(wire: Wire, model: str, reply: Any) -> None:
    wire.answers.append(reply)
    answer = frame_of(model).ask()
    assert [(call.tool, call.args) for call in answer.calls] == [("send", {"text": "Dear"})]
    assert answer.usage == {"input_tokens": 100, "output_tokens": 20}
    (request,) = wire.requests
    assert request.url.path == "/v1/messages"
    assert request.headers["Authorization"] == f"Bearer {wire.key}"


@pytest.mark.parametrize(
    ("status", "text", "cause", "after", "error"),
    [
        (529, "too busy", FailureCause.LIMIT, 3.0, "asks for fewer requests"),
        (400, "max_tokens is too large", FailureCause.REQUEST, None, "rejected the"),
        (401, KEY, FailureCause.SETUP, None, "the key for anthropic:m was refused"),
    ],
)
def test_a_refusal_names_its_cause_and_no_key(
    wire: Wire, frame: Frame, status: int, text: str, cause: str, after: float | None, error: str
) -> None:
    document = {"type": "error", "error": {"type": "some_error", "message": text}}
    wire.answers.append(Response(status, headers={"Retry-After": "3"}, json=document))
    fault = frame.fault()
    assert error in fault.error
    assert (fault.cause, fault.retry_after) == (cause, after)
    assert fault.retryable is (cause is not FailureCause.REQUEST)
    assert KEY not in fault.error
    assert fault.provider_text == ("" if text == KEY else text)
    assert len(wire.bodies) == 1  # the client itself does not ask again


def test_a_picture_goes_out_as_one(wire: Wire, frame: Frame) -> None:
    wire.answers += [anthropic(CALL)] * 2
    frame.ask()
    frame.settle(("returned", file_value("image/png", PNG)))
    frame.ask()
    [result] = wire.bodies[-1]["messages"][-1]["content"]
    source = {"data": b64encode(PNG).decode(), "media_type": "image/png", "type": "base64"}
    assert {"type": "image", "source": source} in result["content"]


def test_a_question_goes_out_with_the_tools_and_allows_none(wire: Wire, frame: Frame) -> None:
    wire.answers += [anthropic(CALL)] * 2
    frame.ask()
    perform(frame.handler, frame.question("Why her?"))
    first, asked = wire.bodies[-2:]
    assert (asked["tool_choice"], asked["tools"]) == ({"type": "none"}, first["tools"])
    told = [part for one in asked["messages"][-3:] for part in one["content"]]
    assert [part["type"] for part in told] == ["tool_use", "tool_result", "text"]
    assert told[-1]["text"].endswith("bea asks: Why her?")

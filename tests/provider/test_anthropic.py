"""One model call through Anthropic's client, whose requests are answered as its API would."""

import json
from base64 import b64encode
from typing import Any
from uuid import uuid4

import pytest
from httpx2 import AsyncClient, MockTransport, Request, Response
from pytest_django import Settings

from agents.endpoints import Endpoint, ProviderKind
from runtime.core.values.enums import FailureCause
from runtime.core.values.json_values import file_value
from runtime.execution.effects.perform import perform
from tests.support.files import PNG
from tests.support.specs import CREATE, MEMORY, MEMORY_LINES, NEWCOMER, Frame

KEY = "sk-canary-anthropic"
WHOLE = 0  # instead of a status: 200, and 400 for a request that asks for a stream
REPLY = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "loopback",
    "content": [{"type": "tool_use", "id": "toolu_1", "name": CREATE.tool, "input": CREATE.args}],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {"input_tokens": 300, "output_tokens": 20},
}
BROKEN_OFF = {**REPLY, "stop_reason": None}


def _error(message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": "some_error", "message": message}}


def _stream(reply: dict[str, Any]) -> bytes:
    """The events of a reply, the arguments of its one call in two pieces; without its end if nothing stopped it."""
    (call,) = reply["content"]
    args = json.dumps(call["input"])
    stop = {"stop_reason": reply["stop_reason"], "stop_sequence": None}
    pieces = [{"type": "input_json_delta", "partial_json": one} for one in (args[:9], args[9:])]
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**reply, "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": {**call, "input": {}}},
        *({"type": "content_block_delta", "index": 0, "delta": piece} for piece in pieces),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 20}},
        {"type": "message_stop"},
    ]
    sent = events if reply.get("stop_reason") else events[:-2]
    lines = (f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in sent)
    return "".join(lines).encode()


BODIES: list[dict[str, Any]] = []


@pytest.fixture
def answers(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The API's answers to the next requests: a status and a document each."""
    answers: list[Any] = []

    def answer(request: Request) -> Response:
        known = request.headers["Authorization"].startswith(f"Bearer {KEY}")
        right = known and request.url.path == "/v1/messages"
        status, document = answers.pop(0) if right else (401, _error(KEY))
        BODIES.append(json.loads(request.content))
        asks = BODIES[-1].get("stream")
        if status == WHOLE:
            status = 400 if asks else 200
        headers = {"Retry-After": "3"}
        if status != 200 or not asks:
            return Response(status, headers=headers, json=document)
        headers["Content-Type"] = "text/event-stream"
        return Response(status, headers=headers, content=_stream(document))

    http = AsyncClient(transport=MockTransport(answer))
    monkeypatch.setattr("anthropic.DefaultAsyncHttpxClient", lambda **_: http)
    settings.SIGNOFF_MODEL = "anthropic:loopback"
    settings.ANTHROPIC_API_KEY = f"{KEY}-{uuid4()}"  # makes a client of its own
    return answers


def test_a_memory_goes_out_before_the_input(answers: list[Any], frame: Frame) -> None:
    answers.append((200, REPLY))
    frame.messages[0]["memory"] = MEMORY
    frame.ask()
    (message,) = BODIES[-1]["messages"]
    told, given = [part["text"] for part in message["content"]]
    assert (message["role"], told.split("\n")[1:], json.loads(given)) == (
        "user",
        MEMORY_LINES,
        NEWCOMER,
    )


@pytest.mark.parametrize("streams", [True, False])
def test_a_call_comes_back_as_any_other(
    answers: list[Any], frame: Frame, settings: Settings, streams: bool
) -> None:
    key = settings.ANTHROPIC_API_KEY
    other = Endpoint(name="other", kind=ProviderKind.ANTHROPIC, url="", key=key, streams=streams)
    settings.SIGNOFF_PROVIDERS = {"other": other}
    settings.SIGNOFF_MODEL = "other:loopback"
    status = 200 if streams else WHOLE
    answers += [(status, REPLY), (status, BROKEN_OFF)]
    answer = frame.ask()
    assert answer.calls == (CREATE,)
    assert answer.usage == {"input_tokens": 300, "output_tokens": 20}
    fault = frame.fault()
    assert "the reply of other:loopback broke off" in fault.error
    assert fault.retryable


def test_a_refusal_names_its_cause_and_no_key(answers: list[Any], frame: Frame) -> None:
    for status, message, cause, after, error in (
        (529, "too busy", FailureCause.LIMIT, 3.0, "asks for fewer requests"),
        (400, "max_tokens is too large", FailureCause.REQUEST, None, "rejected the"),
        (401, KEY, FailureCause.SETUP, None, "the key for anthropic:loopback was refused"),
    ):
        answers.append((status, _error(message)))
        fault = frame.fault()
        assert error in fault.error
        assert (fault.cause, fault.retry_after) == (cause, after)
        assert fault.retryable is (cause is not FailureCause.REQUEST)
        assert KEY not in fault.error
        assert fault.provider_text == ("" if message == KEY else message)
        assert answers == []  # the client itself does not ask again


def test_a_picture_goes_out_as_one(answers: list[Any], frame: Frame) -> None:
    answers += [(200, REPLY), (200, REPLY)]
    frame.ask()
    frame.settle(("returned", file_value("image/png", PNG)))
    frame.ask()
    [result] = BODIES[-1]["messages"][-1]["content"]
    source = {"data": b64encode(PNG).decode(), "media_type": "image/png", "type": "base64"}
    assert {"type": "image", "source": source} in result["content"]


def test_a_question_goes_out_with_the_tools_and_allows_none(
    answers: list[Any], frame: Frame
) -> None:
    answers += [(200, REPLY), (200, REPLY)]
    frame.ask()
    perform(frame.handler, frame.question("Why her?"))
    first, asked = BODIES[-2:]
    assert (asked["tool_choice"], asked["tools"]) == ({"type": "none"}, first["tools"])
    told = [part for one in asked["messages"][-3:] for part in one["content"]]
    assert [part["type"] for part in told] == ["tool_use", "tool_result", "text"]
    assert told[-1]["text"].endswith("bea asks: Why her?")

"""One model call through Anthropic's client, to a server on loopback that answers as its API would."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from pytest_django import Settings

from agents.endpoints import Endpoint, Kind
from config.env.environment import ROOT
from runtime.core.enums import FailureCause
from tests.support.frames import Frame
from tests.support.specs import CREATE

KEY = "sk-canary-anthropic"
WHOLE = 0  # instead of a status: 200, and 400 for a request that asks for a stream
OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": KEY}}
REPLY = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "loopback",
    "content": [{"type": "tool_use", "id": "toolu_1", "name": CREATE.tool, "input": CREATE.args}],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {"input_tokens": 5, "output_tokens": 3},
}


def _stream(reply: dict[str, Any]) -> bytes:
    """The events of a reply, the arguments of its one call in two pieces; without its end if nothing stopped it."""
    (call,) = reply["content"]
    args = json.dumps(call["input"])
    stop = {"stop_reason": reply["stop_reason"], "stop_sequence": None}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**reply, "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": {**call, "input": {}}},
        *(
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "input_json_delta", "partial_json": piece},
            }
            for piece in (args[:9], args[9:])
        ),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 3}},
        {"type": "message_stop"},
    ]
    sent = events if reply.get("stop_reason") else events[:-2]
    lines = (f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in sent)
    return "".join(lines).encode()


@pytest.fixture
def answers(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The server's answers to the next requests: a status and a document each."""
    answers: list[Any] = []

    class Api(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            known = self.headers["Authorization"].startswith(f"Bearer {KEY}")
            right = known and self.path.startswith("/v1/messages")
            status, document = answers.pop(0) if right else (401, OVERLOADED)
            if status == WHOLE:
                status = 400 if body.get("stream") else 200
            streamed = status == 200 and body.get("stream")
            kind = "text/event-stream" if streamed else "application/json"
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Retry-After", "3")
            self.end_headers()
            self.wfile.write(_stream(document) if streamed else json.dumps(document).encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Api)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    settings.ANTHROPIC_BASE_URL = f"http://127.0.0.1:{server.server_port}"
    settings.ABEYANCE_MODEL = "anthropic:loopback"
    # A key of its own makes a client of its own, which finds this server and not the one before.
    settings.ANTHROPIC_API_KEY = f"{KEY}-{server.server_port}"
    yield answers
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_call_comes_back_as_any_other(answers: list[Any], frame: Frame) -> None:
    answers.append((200, REPLY))
    answer = frame.ask()
    assert answer.calls == (CREATE,)
    assert answer.usage == {"input_tokens": 5, "output_tokens": 3}


def test_a_server_that_cannot_stream_is_asked_for_whole_replies(
    answers: list[Any], frame: Frame, settings: Settings
) -> None:
    address, key = settings.ANTHROPIC_BASE_URL, settings.ANTHROPIC_API_KEY
    plain = Endpoint(name="plain", kind=Kind.ANTHROPIC, url=address, key=key, streams=False)
    settings.ABEYANCE_PROVIDERS = {"plain": plain}
    settings.ABEYANCE_MODEL = "plain:loopback"
    answers += [(WHOLE, REPLY), (WHOLE, {**REPLY, "stop_reason": None})]
    answer = frame.ask()
    assert answer.calls == (CREATE,)
    assert answer.usage == {"input_tokens": 5, "output_tokens": 3}
    assert "broke off" in frame.fault().error


def test_a_stream_that_ends_before_the_reply_does_is_no_reply(
    answers: list[Any], frame: Frame
) -> None:
    answers.append((200, {**REPLY, "stop_reason": None}))
    fault = frame.fault()
    assert "the reply of anthropic:loopback broke off" in fault.error
    assert fault.retryable


def test_an_overloaded_provider_is_asked_again_when_it_says(
    answers: list[Any], frame: Frame
) -> None:
    answers.append((529, OVERLOADED))
    fault = frame.fault()
    assert (fault.retryable, fault.retry_after) == (True, 3.0)
    assert fault.cause is FailureCause.LIMIT
    assert KEY not in fault.error
    assert answers == []


def test_the_providers_error_text_is_kept(answers: list[Any], frame: Frame) -> None:
    said = {"type": "invalid_request_error", "message": "max_tokens is too large"}
    answers.append((400, {"type": "error", "error": said}))
    assert frame.fault().said == "max_tokens is too large"


def test_a_wrong_key_is_said_to_be_wrong(
    answers: list[Any], frame: Frame, settings: Settings
) -> None:
    settings.ANTHROPIC_API_KEY = "sk-canary-wrong"
    fault = frame.fault()
    assert fault.cause is FailureCause.SETUP
    assert "the key for anthropic:loopback was refused" in fault.error
    assert "canary" not in fault.error


def test_no_client_of_a_provider_is_imported_before_it_is_needed() -> None:
    code = (
        "import sys, django; django.setup(); import agents.effect_handler, agents.flows.hr; "
        "print({'openai', 'anthropic'} & {*sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "config.settings"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.strip() == "set()"

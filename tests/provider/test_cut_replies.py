"""A reply that a message cuts off, or that is lost with its worker: what each provider gets next, over real HTTP."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from django.db import transaction
from pydantic import BaseModel
from pytest_django import Settings

from agents.sdk import agent
from agents.sdk.scripts import CUT, CUT_BY
from runtime import broker
from runtime.control.interventions import send_message
from runtime.control.start import create
from runtime.models import Run, StoredPartialReply
from tests.support.engine import ADA, Engine, engine_of, events, lose
from tests.support.people import until
from tests.support.provider.protocol import completion_of, events_of
from tests.support.specs import registry_of
from tests.support.threads import in_thread

BEGINNING = "I have looked at the thr"  # what comes before the silence


class Given(BaseModel):
    """Nothing in particular."""


CLERK = agent(name="clerk", description="Looks.", instructions="Look at the accounts.", input=Given)
WHOLE = f"{BEGINNING}ee accounts, and all are fine."
PATHS = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}


def _openai() -> list[bytes]:
    return events_of(completion_of({"role": "assistant", "content": WHOLE}, "loopback"))


def _anthropic() -> list[bytes]:
    usage = {"input_tokens": 40, "output_tokens": 1}
    start = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "loopback",
        "content": [],
        "usage": usage,
    }
    texts = (BEGINNING, WHOLE.removeprefix(BEGINNING))
    pieces = ({"type": "text_delta", "text": text} for text in texts)
    stop = {"stop_reason": "end_turn", "stop_sequence": None}
    found: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**start, "stop_reason": None, "stop_sequence": None}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *({"type": "content_block_delta", "index": 0, "delta": piece} for piece in pieces),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 14}},
        {"type": "message_stop"},
    ]
    return [f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode() for one in found]


SPEECH = {"openai": (_openai, 2), "anthropic": (_anthropic, 3)}  # and the events up to BEGINNING


class Speaker(ThreadingHTTPServer):
    """Streams WHOLE to each request; to the first one only its beginning, and then it is silent."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies: list[dict[str, Any]] = []
        self.leaving = threading.Event()


class _Handler(BaseHTTPRequestHandler):
    server: Speaker

    def do_POST(self) -> None:
        kind = next(name for name, path in PATHS.items() if path == self.path)
        speech, begun = SPEECH[kind]
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert body["stream"]
        self.server.bodies.append(body)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        is_first = len(self.server.bodies) == 1
        for piece in speech()[: begun if is_first else None]:
            self.wfile.write(piece)
        self.wfile.flush()
        if is_first:
            self.server.leaving.wait(60)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def speaker(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Speaker]:
    monkeypatch.setattr("agents.llm.call.KEEP_SECONDS", 0.02)
    monkeypatch.setattr(broker, "send_all", lambda hints: None)
    with Speaker() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        settings.OPENAI_BASE_URL, settings.ANTHROPIC_BASE_URL = f"{url}/v1", url
        settings.OPENAI_API_KEY = settings.ANTHROPIC_API_KEY = "a key of this test"
        yield server
        server.leaving.set()
        server.shutdown()
        thread.join()


def _lose(engine: Engine, run: Run) -> None:
    held = next(iter(engine.heartbeat._claimed.values()))
    held.lost.set()
    held.wake()


@pytest.mark.parametrize("kind", SPEECH)
@pytest.mark.parametrize("cause", ["message", "lost"])
def test_the_next_request_says_what_was_cut(
    by_hand: None,
    everything_permitted: None,
    speaker: Speaker,
    settings: Settings,
    kind: str,
    cause: str,
) -> None:
    settings.SIGNOFF_MODEL = f"{kind}:loopback"
    with engine_of(registry_of(CLERK)) as engine:
        with transaction.atomic():
            run = create(agent="clerk", input={}, requester=ADA).run
        worker = in_thread(lambda: engine.advance_once(run))
        until(lambda: StoredPartialReply.objects.filter(run_id=run).first(), "a part of the reply")
        if cause == "message":
            send_message(run=run, actor=ADA, text="Only two.", cut_reply=True)
        else:
            _lose(engine, Run.objects.get(id=run))
        worker.join(20)
        if cause == "lost":
            lose(run)
            engine.go_on(run)
    assert Run.objects.get(id=run).output == json.dumps(WHOLE)
    (retry,) = [one for one in events(run) if one["type"] == "RetryScheduled"]
    known, estimated = (
        (40, 6) if kind == "anthropic" else (61, 67)
    )  # OpenAI tells them with the end
    assert (retry["cause"], retry["partial"], retry["usage"]) == (
        cause,
        BEGINNING,
        {"input_tokens": known, "output_tokens": 6, "estimated_tokens": estimated},
    )
    _, second = speaker.bodies
    sent = json.dumps(second["messages"][-2:])
    facts = {"cut_by": CUT_BY[cause], "beginning": BEGINNING, "cut_after_tokens": 6}
    assert json.dumps(f"{CUT}{json.dumps(facts)[:-1]}, ")[1:-1] in sent
    assert ("Only two." in sent) is (cause == "message")

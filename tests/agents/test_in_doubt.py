"""A real tool whose real server does not answer: certain, in-doubt and repeated calls."""

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest
from httpx2 import Client, ReadTimeout
from pydantic import BaseModel

from agents.registry import Registry
from agents.sdk import tool
from agents.sdk.scripts import Reply, Turn, call, say, script
from runtime.broker import dispatch
from runtime.core.enums import EffectClass
from runtime.models import Gate
from tests.support.engine import engine_of, events_of
from tests.support.specs import registry_of, spec_of


class Silence:
    """A server that takes every request and answers none; `taken` counts them."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.taken = 0
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}/"

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                one, _ = self._socket.accept()
                self._open.append(one)
                self.taken += one.recv(65536).startswith(b"POST")

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        for one in (self._socket, *self._open):
            one.close()


@pytest.fixture
def silence() -> Iterator[Silence]:
    one = Silence()
    yield one
    one.close()


class Where(BaseModel):
    url: str


@script
def sender(turn: Turn) -> Reply:
    return say("Sent.") if turn.results else call("transfer", url=turn.input["url"])


def transferring(effect: EffectClass) -> Registry:
    """An agent whose one tool asks a server and waits a tenth of a second for its answer."""

    @tool(effect=effect)
    def transfer(url: str) -> str:
        """Move the money."""
        with Client(timeout=0.1) as client:
            return client.post(url).text

    return registry_of(spec_of("teller", input=Where, model=sender, tools=[transfer]))


def test_a_write_with_a_read_timeout_is_in_doubt_not_repeated(
    transactional_db: None, monkeypatch: pytest.MonkeyPatch, silence: Silence
) -> None:
    monkeypatch.setattr(dispatch, "dispatch", lambda run, queue="": None)
    with engine_of(transferring(EffectClass.WRITE)) as engine:
        run = engine.begin("teller", {"url": silence.url})
        engine.go_on(run.id)  # a second look finds nothing to do
    assert (run.status, silence.taken) == ("suspended", 1)
    (gate,) = Gate.objects.filter(run=run)
    assert (gate.kind, gate.state) == ("in_doubt", "open")
    (lost,) = [event for event in events_of(run) if event["type"] == "OutcomeUnknown"]
    assert ReadTimeout.__name__ in lost["error"]


def test_an_idempotent_call_is_repeated_after_a_read_timeout(
    transactional_db: None, monkeypatch: pytest.MonkeyPatch, silence: Silence
) -> None:
    """The control of the test above: a call that may be repeated is started again."""
    monkeypatch.setattr(dispatch, "dispatch", lambda run, queue="": None)
    monkeypatch.setattr("random.random", lambda: 0.0)  # at once
    with engine_of(transferring(EffectClass.IDEMPOTENT)) as engine:
        run = engine.begin("teller", {"url": silence.url})
    assert (run.status, silence.taken) == ("completed", 3)

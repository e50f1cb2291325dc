"""A waiting request is answered when its run has reached the state; until then it uses no thread."""

import asyncio
import http.client
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from typing import Any
from uuid import UUID, uuid4

import pytest
from a2wsgi import WSGIMiddleware
from django.db import connections

from approvals.accounts import tokens
from config import longpoll
from runtime.broker import dispatch
from runtime.web.api.runs import WAIT_HEADER
from runtime.web.live import LiveServer, Message, Send
from tests.support.api_client import Caller, field_of
from tests.support.cast import Cast
from tests.support.live_tabs import WITHIN, House
from tests.support.office import Office


class Answers:
    """Stand-in for Django: returns these answers in order, then repeats the last one."""

    def __init__(self, *states: bytes) -> None:
        self.states = list(states)
        self.asked = threading.Semaphore(0)

    async def __call__(self, send: Send) -> None:
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        headers = [(b"abeyance-wait", state)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": state})
        self.asked.release()


@pytest.fixture
def house(live_broker: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    monkeypatch.setattr(dispatch, "_notifier", None)
    monkeypatch.setattr(longpoll, "ROUND_SECONDS", 1000.0)  # only a ring wakes it
    with House() as house:
        yield house


def _answered(house: House, run: UUID, answers: Answers) -> Future[list[Message]]:
    async def wait() -> list[Message]:
        sent: list[Message] = []

        async def send(message: Message) -> None:
            sent.append(message)

        await longpoll.answer(run, answers, asyncio.Event().wait(), house.live_server, send)  # type: ignore[arg-type]
        return sent

    return asyncio.run_coroutine_threadsafe(wait(), house._loop)


class Heard(asyncio.Event):
    """Set whether the broker is connected, also from other threads."""

    def __init__(self) -> None:
        super().__init__()
        self.known = threading.Event()

    def set(self) -> None:
        super().set()
        self.known.set()


class Watched(LiveServer):
    """A live server that records when requests start and stop waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.connected: Heard = Heard()
        self.begun = threading.Semaphore(0)
        self.over = threading.Semaphore(0)

    @contextmanager
    def waiting(self, run: UUID) -> Iterator[asyncio.Event]:
        with super().waiting(run) as changed:
            self.begun.release()
            yield changed
        self.over.release()


@pytest.fixture
def served(
    suspended: UUID, live_broker: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Watched, socket.socket]]:
    """The web's own server and application on a socket, with one thread for Django.

    The run is there before: its rings went to a broker that is not listened to.
    """
    from config import asgi, web, wsgi

    application: Any = wsgi.application
    django: Any = WSGIMiddleware(application, workers=1)
    watched = Watched()
    monkeypatch.setattr(dispatch, "_notifier", None)
    monkeypatch.setattr(longpoll, "ROUND_SECONDS", 1000.0)
    monkeypatch.setattr(asgi, "_django", django)
    monkeypatch.setattr(asgi, "live_server", watched)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = web.server(fd=listening.fileno())
        thread = threading.Thread(target=server.run)
        thread.start()
        assert watched.connected.known.wait(
            WITHIN
        )  # from here on only a ring ends a wait, or leaving
        yield watched, listening
        server.should_exit = True
        thread.join(WITHIN)
    django.executor.submit(connections.close_all).result(WITHIN)
    django.executor.shutdown()


@pytest.mark.filterwarnings("ignore:No directory at")
def test_a_client_that_disconnects_frees_its_place(
    served: tuple[Watched, socket.socket], office: Office, cast: Cast, suspended: UUID
) -> None:
    """Over a real connection: one request disconnects, the next one is answered by a live update."""
    watched, listening = served
    address, port = listening.getsockname()
    _, secret = tokens.create(cast.ada, ["runs:read"])
    headers = {"Authorization": f"Bearer {secret}"}

    def ask(query: str) -> http.client.HTTPConnection:
        asking = http.client.HTTPConnection(address, port, timeout=WITHIN)
        asking.request("GET", f"/api/v1/runs/{suspended}{query}", headers=headers)
        return asking

    leaving = ask("?wait=60s")
    assert watched.begun.acquire(timeout=WITHIN)
    with closing(ask("")) as other:  # the only thread is free
        assert other.getresponse().status == 200
    leaving.close()
    assert watched.over.acquire(timeout=WITHIN)
    assert watched.count_waiting() == 0
    with closing(ask("?wait=60s")) as staying:
        assert watched.begun.acquire(timeout=WITHIN)
        office.approve(suspended)
        dispatch.notify_run(suspended, inbox=False)
        answer = staying.getresponse()
        assert (answer.status, answer.headers[WAIT_HEADER]) == (200, "met")


def test_a_ring_answers_a_waiting_request(house: House) -> None:
    run, answers = uuid4(), Answers(b"unmet; 60s", b"met")
    answer = _answered(house, run, answers)
    assert answers.asked.acquire(timeout=WITHIN)
    dispatch.notify_run(uuid4(), inbox=False)  # of another run
    dispatch.notify_run(run, inbox=False)
    assert [message.get("body") for message in answer.result(WITHIN)] == [None, b"met"]
    assert answers.asked.acquire(blocking=False)
    assert not answers.asked.acquire(blocking=False)  # one ring, one look


def test_a_request_whose_time_is_over_gets_the_run_as_it_is(house: House) -> None:
    answer = _answered(house, uuid4(), Answers(b"unmet; 1s")).result(WITHIN)
    assert answer[-1]["body"] == b"unmet; 1s"


def test_one_request_too_many_is_answered_at_once(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(longpoll, "MAX_WAITING", 0)
    answer = _answered(house, uuid4(), Answers(b"unmet; 60s")).result(WITHIN)
    assert answer[-1]["body"] == b"unmet; 60s"


def test_a_process_that_ends_answers_waiting_requests(house: House) -> None:
    answers = Answers(b"unmet; 60s")
    answer = _answered(house, uuid4(), answers)
    assert answers.asked.acquire(timeout=WITHIN)
    house._loop.call_soon_threadsafe(house.live_server.close_streams)
    assert answer.result(WITHIN)[-1]["body"] == b"unmet; 60s"


def test_the_answer_tells_whether_the_state_was_reached(
    office: Office, ada_api: Caller, suspended: UUID
) -> None:
    def said(query: str) -> str:
        answer = ada_api.get(f"/runs/{suspended}?{query}")
        assert answer.status_code == 200
        return str(answer["Abeyance-Wait"])

    assert WAIT_HEADER.lower().encode() == longpoll.HEADER
    assert said("wait=30s&until=suspended") == "met"
    assert said("wait=30s") == said("wait=30s&until=ended") == "unmet; 30s"
    office.approve(suspended)
    assert said("wait=30s") == "met"
    for wait in ("61s", "0s", "30", "1m", "٣s"):
        answer = ada_api.get(f"/runs/{suspended}?wait={wait}")
        assert field_of(answer) == (422, "wait")
        assert "from 1s to 60s" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("method", "path", "query", "waits"),
    [
        ("GET", "/api/v1/runs/{}", b"wait=30s", True),
        ("GET", "/api/v1/runs/{}", b"", False),
        ("POST", "/api/v1/runs/{}", b"wait=30s", False),
        ("GET", "/api/v1/runs/{}/journal", b"wait=30s", False),
    ],
)
def test_only_reading_a_run_waits(method: str, path: str, query: bytes, waits: bool) -> None:
    run = uuid4()
    scope = {"method": method, "path": path.format(run), "query_string": query}
    assert (longpoll.run_of(scope) == run) is waits

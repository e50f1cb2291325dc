"""A waiting request is answered when its run has reached the state; until then it uses no thread."""

import asyncio
import http.client
import socket
import threading
from collections.abc import Callable, Iterator
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
from runtime.web.live import LiveServer
from tests.support.api_client import Caller, field_of
from tests.support.cast import Cast
from tests.support.office import Office
from tests.web.live_tabs import WITHIN

Ask = Callable[[str], http.client.HTTPConnection]

pytestmark = pytest.mark.filterwarnings("ignore:No directory at")  # of static files


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

    loop: asyncio.AbstractEventLoop

    def __init__(self) -> None:
        super().__init__()
        self.connected: Heard = Heard()
        self.begun = threading.Semaphore(0)
        self.over = threading.Semaphore(0)

    @contextmanager
    def waiting(self, run: UUID) -> Iterator[asyncio.Event]:
        self.loop = asyncio.get_running_loop()
        with super().waiting(run) as changed:
            self.begun.release()
            yield changed
        self.over.release()


@pytest.fixture
def served(
    suspended: UUID, cast: Cast, live_broker: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Watched, Ask]]:
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
    _, secret = tokens.create(cast.ada, ["runs:read"])
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def ask(query: str) -> http.client.HTTPConnection:
            host, port = listening.getsockname()
            asking = http.client.HTTPConnection(host, port, timeout=WITHIN)
            headers = {"Authorization": f"Bearer {secret}"}
            asking.request("GET", f"/api/v1/runs/{suspended}{query}", headers=headers)
            return asking

        server = web.server(fd=listening.fileno())
        thread = threading.Thread(target=server.run)
        thread.start()
        assert watched.connected.known.wait(WITHIN)  # then only a ring or leaving ends a wait
        yield watched, ask
        server.should_exit = True
        thread.join(WITHIN)
    django.executor.submit(connections.close_all).result(WITHIN)
    django.executor.shutdown()


def _answer(asking: http.client.HTTPConnection) -> str | None:
    with closing(asking):
        answer = asking.getresponse()
        assert answer.status == 200
        return answer.headers[WAIT_HEADER]


def test_a_ring_answers_a_request_and_one_that_disconnects_frees_its_place(
    served: tuple[Watched, Ask], office: Office, suspended: UUID
) -> None:
    watched, ask = served
    leaving = ask("?wait=60s")
    assert watched.begun.acquire(timeout=WITHIN)
    assert _answer(ask("")) is None  # the only thread is free
    leaving.close()
    assert watched.over.acquire(timeout=WITHIN)
    assert watched.count_waiting() == 0
    staying = ask("?wait=60s")
    assert watched.begun.acquire(timeout=WITHIN)
    office.approve(suspended)
    dispatch.notify_run(uuid4(), inbox=False)  # of another run
    dispatch.notify_run(suspended, inbox=False)
    assert _answer(staying) == "met"


def test_a_wait_that_ends_first_gets_the_run_as_it_is(
    served: tuple[Watched, Ask], monkeypatch: pytest.MonkeyPatch
) -> None:
    """When its time is over, when the process ends, and at once if too many wait."""
    watched, ask = served
    assert _answer(ask("?wait=1s")) == "unmet; 1s"
    monkeypatch.setattr(longpoll, "MAX_WAITING", 0)
    assert _answer(ask("?wait=60s")) == "unmet; 60s"
    monkeypatch.setattr(longpoll, "MAX_WAITING", 1)
    while watched.begun.acquire(blocking=False):
        pass
    staying = ask("?wait=60s")
    assert watched.begun.acquire(timeout=WITHIN)
    watched.loop.call_soon_threadsafe(watched.close_streams)
    assert _answer(staying) == "unmet; 60s"


def test_the_answer_tells_whether_the_state_was_reached(
    office: Office, ada_api: Caller, suspended: UUID
) -> None:
    def said(query: str) -> str:
        return str(ada_api.get(f"/runs/{suspended}?{query}")["Abeyance-Wait"])

    assert WAIT_HEADER.lower().encode() == longpoll.HEADER
    assert said("wait=30s&until=suspended") == "met"
    assert said("wait=30s") == said("wait=30s&until=ended") == "unmet; 30s"
    office.approve(suspended)
    assert said("wait=30s") == "met"
    for wait in ("61s", "0s", "30", "1m", "٣s"):
        answer = ada_api.get(f"/runs/{suspended}?wait={wait}")
        assert field_of(answer) == (422, "wait")
        assert "from 1s to 60s" in answer.json()["detail"]


def test_only_reading_a_run_waits() -> None:
    run = uuid4()
    for method, path, query, waits in (
        ("GET", f"/api/v1/runs/{run}", b"wait=30s", True),
        ("GET", f"/api/v1/runs/{run}", b"", False),
        ("POST", f"/api/v1/runs/{run}", b"wait=30s", False),
        ("GET", f"/api/v1/runs/{run}/journal", b"wait=30s", False),
    ):
        scope = {"method": method, "path": path, "query_string": query}
        assert (longpoll.run_of(scope) == run) is waits

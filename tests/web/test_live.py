"""Live updates reach only people who may read the run; a waiting request is answered once its run is in the state."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any, Self
from uuid import UUID, uuid4

import pytest
import redis
from a2wsgi import WSGIMiddleware
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connections
from django.test import Client

from config import longpoll
from config.env.environment import ROOT
from runtime import broker as dispatch
from runtime.web import live
from runtime.web.api.runs import PERSON_HEADER, WAIT_HEADER
from runtime.web.live import LiveServer, Message
from tests.support.api_client import Caller, field_of
from tests.support.office import Office
from tests.support.pages import log_in
from tests.support.people import until

pytestmark = pytest.mark.filterwarnings("ignore:No directory at")  # of static files

WITHIN = 60.0


class Tab:
    """One request with the messages from the server until it ended the answer."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.headers: dict[bytes, bytes] = {}
        self.text = ""
        self.ended = False
        self.left = asyncio.Event()
        self._changed = threading.Condition()
        self._asked = iter([{"type": "http.request"}])

    def wait(self, reached: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(reached, WITHIN), (self.status, self.text, self.ended)

    async def hear(self, message: Message) -> None:
        with self._changed:
            self.status = message.get("status", self.status)
            self.headers |= message.get("headers", {})
            self.text += message.get("body", b"").decode()
            self.ended |= message["type"] == "http.response.body" and not message.get("more_body")
            self._changed.notify_all()

    async def tell(self) -> Message:
        for message in self._asked:
            return message
        await self.left.wait()
        return {"type": "http.disconnect"}


class House:
    """A running application and its live server. Close it before the database is flushed."""

    def __enter__(self) -> Self:
        self.live_server = LiveServer()
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()
        self.soon(self._opened())
        return self

    def __exit__(self, *_: object) -> None:
        self.soon(self.live_server.close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(WITHIN)
        self.loop.close()

    def open(self, client: Client | None, method: str = "GET", **headers: str) -> Tab:
        """A tab with the session of this client; back when the server has answered."""
        tab = self.ask(self.live_server, client, method=method, path="/events/", headers=headers)
        tab.wait(lambda: tab.status is not None and (tab.ended or tab.text != ""))
        return tab

    def ask(self, application: Any, client: Client | None, headers: Any = (), **more: Any) -> Tab:
        """Send a request with the session of this client."""
        tab = Tab()
        morsel = client.cookies.get(settings.SESSION_COOKIE_NAME) if client else None
        cookie = f"{settings.SESSION_COOKIE_NAME}={morsel.value if morsel else ''}"
        sent = [("cookie", cookie), *dict(headers).items()]
        named = [(name.replace("_", "-").encode(), value.encode()) for name, value in sent]
        scope = {"type": "http", "http_version": "1.1", "method": "GET", **more, "headers": named}
        asyncio.run_coroutine_threadsafe(application(scope, tab.tell, tab.hear), self.loop)
        return tab

    def waits(self, count: int) -> None:
        """Return once so many requests wait for a run."""
        waiting = self.live_server.count_waiting
        until(lambda: waiting() == count or None, f"{count} requests to wait")

    def soon(self, work: Coroutine[Any, Any, None]) -> None:
        """Do this in the loop."""
        asyncio.run_coroutine_threadsafe(work, self.loop).result(WITHIN)

    async def _opened(self) -> None:
        self.live_server.open()
        with suppress(TimeoutError):
            async with asyncio.timeout(5):
                await self.live_server.connected.wait()


@pytest.fixture
def house(live_broker: str, office: Office, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    monkeypatch.setattr(dispatch, "_notifier", None)
    monkeypatch.setattr(live, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(live, "CHECK_SECONDS", 1000.0)
    with House() as house:
        yield house


def test_a_ring_reaches_those_who_may_read_the_run_and_no_other(
    house: House, suspended: UUID, ada: Client, bea: Client, cyril: Client
) -> None:
    tabs = {name: house.open(client) for name, client in (("ada", ada), ("bea", bea))}
    outsider = house.open(cyril)
    dispatch.notify_run(suspended, inbox=True)
    for tab in tabs.values():
        tab.wait(lambda tab=tab: f"event: run\ndata: {suspended}\n\n" in tab.text)  # type: ignore[misc]
        assert "event: inbox\n" in tab.text
    dispatch.notify_person("cyril")  # published after the update, so its effect is visible
    dispatch.notify_run(uuid4(), inbox=True)
    assert outsider.text == ": open\n\n"


def test_a_gate_and_its_decision_ring_the_inbox(house: House, office: Office, bea: Client) -> None:
    tab = house.open(bea)
    run = office.start()
    tab.wait(lambda: "event: inbox" in tab.text and str(run) in tab.text)
    for _ in range(3):  # what rang for the gate may still be under way, and travels with the first
        tab.text = ""
        dispatch.notify_run(run, inbox=False)
        tab.wait(lambda: "event: run" in tab.text)
    assert "event: inbox" not in tab.text
    tab.text = ""
    office.approve(run)
    tab.wait(lambda: "event: inbox" in tab.text and str(run) in tab.text)


def test_revoked_rights_count_at_the_next_ring(suspended: UUID, house: House, bea: Client) -> None:
    tab, own = house.open(bea), uuid4()
    User.objects.get(username="bea").groups.clear()
    dispatch.notify_run(suspended, inbox=True)
    dispatch.notify_run(own, inbox=True)
    User.objects.filter(username="bea").update(is_active=False)
    dispatch.notify_person("bea")
    tab.wait(lambda: tab.ended)
    assert "event" not in tab.text


def test_logging_out_ends_that_sessions_streams(house: House, suspended: UUID, bea: Client) -> None:
    other = log_in(User.objects.get(username="bea"))
    ends, stays = house.open(bea), house.open(other)
    bea.post("/logout/")
    ends.wait(lambda: ends.ended)
    dispatch.notify_run(suspended, inbox=True)
    stays.wait(lambda: "event: run" in stays.text)


def test_silent_streams_recheck(house: House, bea: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "BEAT_SECONDS", 0.05)
    monkeypatch.setattr(live, "RIGHTS_SECONDS", 0.2)
    tab = house.open(bea)
    tab.wait(lambda: ": still here" in tab.text)
    User.objects.filter(username="bea").update(is_active=False)
    tab.wait(lambda: tab.ended)


def test_junk_is_ignored(house: House, live_broker: str, suspended: UUID, bea: Client) -> None:
    tab = house.open(bea)
    broker = redis.Redis.from_url(live_broker)
    for junk in (b"\xff\x00", b"[]", b'{"runs": {"x": true}}', b'{"runs": 3}', b"[" * 100_000):
        broker.publish(dispatch.CHANNEL, junk)
    dispatch.notify_run(suspended, inbox=False)
    tab.wait(lambda: str(suspended) in tab.text)


def test_who_gets_no_stream(house: House, bea: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger, another site, another method, one tab too many, a disabled person."""
    assert house.open(None).status == 401
    assert house.open(bea, sec_fetch_site="cross-site").status == 403
    assert house.open(bea, sec_fetch_site="same-site").status == 403
    assert house.open(bea, method="POST").status == 405
    monkeypatch.setattr(live, "MAX_STREAMS", 1)
    first = house.open(bea)
    assert house.open(bea).status == 503
    assert not first.ended
    User.objects.filter(username="bea").update(is_active=False)
    monkeypatch.undo()
    assert house.open(bea).status == 401


def test_a_new_stream_ends_the_oldest_of_its_person_and_no_other(
    house: House, bea: Client, ada: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "MAX_STREAMS", 3)
    monkeypatch.setattr(live, "MAX_STREAMS_OF_PERSON", 2)
    other = log_in(User.objects.get(username="bea"))
    of_ada, *of_bea = (house.open(client) for client in (ada, bea, other))
    for oldest in of_bea:
        newest = house.open(bea)
        oldest.wait(lambda oldest=oldest: oldest.ended)  # type: ignore[misc]
    assert (newest.status, newest.ended, of_ada.ended) == (200, False, False)
    assert house.open(ada).status == 503


def test_without_a_broker_pages_are_told_to_ask_by_themselves(office: Office, bea: Client) -> None:
    with House() as house:  # no live_broker: no broker at its address
        assert house.open(bea).status == 503


# Waiting for a state of a run; until then the request uses no thread


@pytest.fixture
def served(
    house: House, suspended: UUID, ada: Client, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Tab]]:
    """Ask for Ada's run, in the web's own application with one thread for Django."""
    from config import asgi

    django: Any = WSGIMiddleware(asgi._wsgi, workers=1)
    monkeypatch.setattr(asgi, "_django", django)
    monkeypatch.setattr(asgi, "live_server", house.live_server)
    path = f"/api/v1/runs/{suspended}"
    yield lambda query, person=ada: house.ask(
        asgi.application, person, path=path, query_string=query
    )
    django.executor.submit(connections.close_all).result(WITHIN)
    django.executor.shutdown()


def _answer(asked: Tab) -> str | None:
    asked.wait(lambda: asked.ended)
    assert asked.status == 200
    found = {name.lower(): value for name, value in asked.headers.items()}.get(longpoll.HEADER)
    return found.decode() if found else None


def test_a_ring_answers_a_request_and_one_that_disconnects_frees_its_place(
    house: House, served: Callable[..., Tab], office: Office, suspended: UUID
) -> None:
    leaving = served(b"wait=60s")
    house.waits(1)
    assert _answer(served(b"")) is None  # the only thread is free
    house.loop.call_soon_threadsafe(leaving.left.set)
    house.waits(0)
    staying = served(b"wait=60s")
    house.waits(1)
    office.approve(suspended)
    dispatch.notify_run(uuid4(), inbox=False)  # of another run
    dispatch.notify_run(suspended, inbox=False)
    assert _answer(staying) == "met"


def test_a_lost_update_is_noticed_by_the_next_check(
    house: House,
    served: Callable[..., Tab],
    office: Office,
    suspended: UUID,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(house.live_server, "_receive", lambda data: None)
    waiting = [served(b"wait=60s") for _ in range(3)]
    house.waits(3)
    house.soon(house.live_server.check_waiting())
    assert not any(request.ended for request in waiting)
    office.approve(suspended)
    house.soon(house.live_server.check_waiting())
    assert [_answer(request) for request in waiting] == ["met"] * 3


def test_a_wait_that_ends_first_gets_the_run_as_it_is(
    house: House, served: Callable[..., Tab], monkeypatch: pytest.MonkeyPatch
) -> None:
    """When its time is over, when the process ends, and at once if too many wait."""
    assert _answer(served(b"wait=1s")) == "unmet; 1s"
    monkeypatch.setattr(live, "MAX_WAITING", 0)
    assert _answer(served(b"wait=60s")) == "unmet; 60s"
    monkeypatch.setattr(live, "MAX_WAITING", 1)
    staying = served(b"wait=60s")
    house.waits(1)
    house.loop.call_soon_threadsafe(house.live_server.close_streams)
    assert _answer(staying) == "unmet; 60s"


def test_a_new_wait_answers_the_oldest_of_its_person_and_no_other(
    house: House,
    served: Callable[..., Tab],
    suspended: UUID,
    bea: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live, "MAX_WAITING_OF_PERSON", 1)
    of_bea = served(b"wait=60s", bea)
    house.waits(1)
    oldest = served(b"wait=60s")
    house.waits(2)
    staying = served(b"wait=60s")
    assert _answer(oldest) == "unmet; 60s"
    assert longpoll.PERSON_HEADER not in {name.lower() for name in oldest.headers}
    assert (of_bea.ended, staying.ended) == (False, False)


def test_a_wait_tells_if_it_was_met(office: Office, ada_api: Caller, suspended: UUID) -> None:
    def said(query: str) -> str:
        return str(ada_api.get(f"/runs/{suspended}?{query}")["Signoff-Wait"])

    names = [name.lower().encode() for name in (WAIT_HEADER, PERSON_HEADER)]
    assert names == [longpoll.HEADER, longpoll.PERSON_HEADER]
    assert said("wait=30s&until=suspended") == "met"
    assert said("wait=30s") == said("wait=30s&until=ended") == "unmet; 30s"
    office.approve(suspended)
    assert said("wait=30s") == "met"
    for wait in ("61s", "0s", "30", "1m", "٣s"):
        answer = ada_api.get(f"/runs/{suspended}?wait={wait}")
        assert field_of(answer) == (422, "wait")
        assert "from 1s to 60s" in answer.json()["detail"]


def test_requests_that_are_woken_together_leave_threads_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 20 waits for one run, at most ASKS_AT_ONCE are passed to Django again at the same time."""
    monkeypatch.setattr(LiveServer, "read_version", lambda self, wait: asyncio.sleep(0))
    asking: list[int] = []
    busy: list[int] = []
    all_wait = asyncio.Event()

    async def ask(send: live.Send, _: longpoll.Headers) -> None:
        headers = [] if all_wait.is_set() else [(longpoll.HEADER, b"unmet; 9s")]
        asking.append(1)
        busy.append(len(asking) if all_wait.is_set() else 0)
        await asyncio.sleep(0)  # so that others may begin
        asking.pop()
        await send({"type": "http.response.start", "status": 200, "headers": headers})

    async def send(message: Message) -> None:
        pass

    async def stay() -> None:
        await asyncio.Event().wait()

    async def drive() -> None:
        live_server, run = LiveServer(), uuid4()
        answers = [longpoll.send_answer(run, ask, stay(), live_server, send) for _ in range(20)]
        waits = [asyncio.ensure_future(answer) for answer in answers]
        while live_server.count_waiting() < len(waits):  # noqa: ASYNC110 - it is not told
            await asyncio.sleep(0)
        all_wait.set()
        live_server._wake(run)
        await asyncio.gather(*waits)

    asyncio.run(drive())
    assert (len(busy), max(busy)) == (40, live.ASKS_AT_ONCE)


def test_a_call_through_a_gateway_waits_for_its_own_run_and_is_collected_once_it_was_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sent again without its run, it would be a new call when another client has collected the result."""
    monkeypatch.setattr(LiveServer, "read_version", lambda self, wait: asyncio.sleep(0))
    run = str(uuid4()).encode()
    asked: list[longpoll.Headers] = []
    sent: list[Message] = []

    async def ask(send: live.Send, extra: longpoll.Headers) -> None:
        asked.append(extra)
        state = b"met" if len(asked) > 1 else b"unmet; 9s"
        headers = [(longpoll.HEADER, state), (longpoll.RUN_HEADER, run)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})

    async def send(message: Message) -> None:
        sent.append(message)

    async def stay() -> None:
        await asyncio.Event().wait()

    async def drive() -> None:
        await longpoll.send_answer(None, ask, stay(), LiveServer(), send)

    asyncio.run(drive())
    assert asked == [[], [(longpoll.RUN_HEADER, run)], [(longpoll.COLLECTED_HEADER, run)]]
    assert sent[0]["headers"] == [(longpoll.HEADER, b"met")]


def test_the_limits_are_those_that_operators_read() -> None:
    page = " ".join((ROOT / "docs/reference/limits.md").read_text().split())
    of_person = f"{live.MAX_STREAMS_OF_PERSON} and {live.MAX_WAITING_OF_PERSON} (the oldest ends)"
    assert f"a web process: {of_person}; of all: {live.MAX_STREAMS} each" in page
    assert live.MAX_WAITING == live.MAX_STREAMS


def test_reading_a_run_waits_and_the_use_of_an_approval() -> None:
    run = uuid4()
    for method, path, query, waits in (
        ("GET", f"/api/v1/runs/{run}", b"wait=30s", True),
        ("GET", f"/api/v1/runs/{run}", b"", False),
        ("POST", f"/api/v1/runs/{run}", b"wait=30s", False),
        ("GET", f"/api/v1/runs/{run}/journal", b"wait=30s", False),
        ("GET", f"/api/aap/v1/requests/{run}", b"wait=30s", True),
        ("GET", f"/api/aap/v1/requests/{str(run).upper()}", b"wait=30s", True),
        ("POST", f"/api/aap/v1/requests/{run.hex}/consume", b"", True),
        ("GET", f"/api/aap/v1/requests/{run}/consume", b"", False),
        ("POST", f"/api/aap/v1/requests/{run}/outcome", b"", False),
    ):
        scope = {"method": method, "path": path, "query_string": query}
        assert (longpoll.find_run(scope) == run) is waits

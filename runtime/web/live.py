"""The doorbell: one stream of server-sent events per open tab, which carries names and nothing else.

What the ring is about is fetched by the page with a GET of its own, where rights apply as everywhere.
Rings travel over the broker's pub/sub and may be lost: the next GET is complete all the same. A ring
is passed on only to those who may read the run, asked anew each time, by the session as it is now.
The server ends a stream whose session has ended, and all of them when it cannot hear the broker.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from importlib import import_module
from typing import Any
from uuid import UUID

import redis.asyncio
from django.conf import settings
from django.contrib.auth import get_user
from django.db import close_old_connections, connections
from django.http import HttpRequest
from redis.exceptions import RedisError

from runtime.broker.dispatch import CHANNEL
from runtime.models import Run
from runtime.ports import wiring
from runtime.ports.access import Actor

log = logging.getLogger(__name__)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

MAX_STREAMS = 1000
BEAT_SECONDS = 15.0  # so that a connection that is gone is noticed
RIGHTS_SECONDS = 30.0
PAUSE_SECONDS = 0.5  # a page is refreshed at most twice a second
RECONNECT_SECONDS = 2.0

_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
]


@dataclass(slots=True, eq=False)
class Stream:
    """One tab. `rings` are the runs to ring for, with whether the inbox changed; `over` ends it.

    `asked` says that the session must be looked at now.
    """

    session: str
    person: str
    rings: dict[UUID, bool] = field(default_factory=dict)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    asked: bool = False
    over: bool = False

    def ring(self, runs: dict[UUID, bool]) -> None:
        for run, inbox in runs.items():
            self.rings[run] = self.rings.get(run, False) or inbox
        self.wake.set()

    def ask(self) -> None:
        self.asked = True
        self.wake.set()

    def end(self) -> None:
        self.over = True
        self.wake.set()


class Doorbell:
    """The ASGI application of one web process, and its ear at the broker."""

    def __init__(self) -> None:
        self._streams: set[Stream] = set()
        self.heard = asyncio.Event()  # the broker is heard right now
        self.hushed = False  # true once this process shall end
        self._ear: asyncio.Task[None] | None = None
        self._waiting: dict[UUID, set[asyncio.Event]] = {}
        # One thread and one connection, however many tabs are open; requests have theirs.
        self._reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="doorbell")

    def open(self) -> None:
        """Start listening, in the running loop."""
        self._ear = asyncio.get_running_loop().create_task(self._listen())

    def hush(self) -> None:
        """End every stream, so that the server can end."""
        self.hushed = True
        if self._ear is not None:
            self._ear.cancel()
        self._end_all()
        for run in list(self._waiting):
            self._wake(run)

    async def close(self) -> None:
        """Stop for good, and give back the connection to Postgres."""
        self.hush()
        if self._ear is not None:
            await asyncio.wait([self._ear])
        await asyncio.wrap_future(self._reader.submit(connections.close_all))

    @contextmanager
    def waiting(self, run: UUID) -> Iterator[asyncio.Event]:
        """Provide an event that is set when this run changes or the process ends. The waiting request checks rights."""
        rung = asyncio.Event()
        self._waiting.setdefault(run, set()).add(rung)
        try:
            yield rung
        finally:
            self._waiting[run].discard(rung)
            if not self._waiting[run]:
                del self._waiting[run]

    def count_waiting(self) -> int:
        """Count the requests that wait for runs."""
        return sum(map(len, self._waiting.values()))

    def _wake(self, run: UUID) -> None:
        for rung in self._waiting.get(run, ()):
            rung.set()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        session = _session_key(headers.get(b"cookie", b""))
        if scope["method"] != "GET":
            await _refuse(send, 405, "Only GET is possible here.")
        elif headers.get(b"sec-fetch-site", b"same-origin") not in (b"same-origin", b"none"):
            await _refuse(send, 403, "This is for pages of this site.")
        elif (person := await self._read(_person_of, session)) is None:
            await _refuse(send, 401, "Log in first.")
        elif not self.heard.is_set() or len(self._streams) >= MAX_STREAMS:
            await _refuse(send, 503, "No live updates now. Ask again in a while.")
        else:
            await self._serve(Stream(session=session, person=person), receive, send)

    async def _serve(self, stream: Stream, receive: Receive, send: Send) -> None:
        gone = asyncio.get_running_loop().create_task(_gone(receive, stream))
        self._streams.add(stream)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            await _say(send, ": open\n\n")
            await self._pass_on(stream, send)
            await send({"type": "http.response.body", "body": b""})
        except OSError:
            pass  # the tab was closed in the middle of a line
        finally:
            self._streams.discard(stream)
            gone.cancel()

    async def _pass_on(self, stream: Stream, send: Send) -> None:
        loop = asyncio.get_running_loop()
        checked = loop.time()
        while not stream.over:
            with suppress(TimeoutError):
                async with asyncio.timeout(BEAT_SECONDS):
                    await stream.wake.wait()
            stream.wake.clear()
            rings, stream.rings = stream.rings, {}
            asked, stream.asked = stream.asked, False
            if rings or asked or loop.time() - checked >= RIGHTS_SECONDS:
                names = await self._read(_names, stream, rings)
                checked = loop.time()
                if names is None:
                    return
                for name in names:
                    await _say(send, name)
                await asyncio.sleep(PAUSE_SECONDS)
            elif not stream.over:
                await _say(send, ": still here\n\n")

    async def _listen(self) -> None:
        while True:
            try:
                await self._hear()
            except (RedisError, OSError) as exc:
                log.warning("no live updates until the broker is back: %s", exc)
            except Exception:
                log.exception("no live updates for now")
            finally:
                self.heard.clear()
                self._end_all()  # pages ask by themselves until they can listen again
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _hear(self) -> None:
        broker = redis.asyncio.Redis.from_url(settings.REDIS_URL, socket_connect_timeout=2)
        async with broker, broker.pubsub() as ear:
            await ear.subscribe(CHANNEL)
            self.heard.set()
            while True:
                # An own ping: a frozen broker would otherwise be waited for without end.
                message = await ear.get_message(ignore_subscribe_messages=True, timeout=5.0)
                if message is None:
                    async with asyncio.timeout(5.0):
                        await ear.ping()
                else:
                    self._ring(message.get("data"))

    def _ring(self, data: Any) -> None:
        """Anybody at the broker can write anything: what is no ring is nothing."""
        try:
            ring = json.loads(data)
            person = ring.get("person")
            runs = {UUID(run): inbox is True for run, inbox in ring.get("runs", {}).items()}
        except (ValueError, TypeError, AttributeError, RecursionError):
            return
        for run in runs:
            self._wake(run)
        for stream in list(self._streams):
            if stream.person == person:
                stream.ask()
            elif runs:
                stream.ring(runs)

    def _end_all(self) -> None:
        for stream in list(self._streams):
            stream.end()

    async def _read(self, read: Callable[..., Any], *what: Any) -> Any:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._reader, _with_database, read, *what)


def _with_database(read: Callable[..., Any], *what: Any) -> Any:
    close_old_connections()
    try:
        return read(*what)
    except Exception as exc:  # whatever Postgres' client raises: the page asks again by itself
        log.warning("a doorbell was not rung: %s", exc)
        return None
    finally:
        close_old_connections()


def _names(stream: Stream, rings: dict[UUID, bool]) -> list[str] | None:
    """The events this person may hear of, None if the session has ended."""
    if _person_of(stream.session) != stream.person:
        return None
    readable = wiring.access().readable_runs(Actor(person=stream.person))
    runs = set(Run.objects.filter(readable, pk__in=rings).values_list("pk", flat=True))
    return list(_events(rings[run] for run in runs)) + [f"event: run\ndata: {r}\n\n" for r in runs]


def _events(inbox: Iterable[bool]) -> Iterable[str]:
    if any(inbox):
        yield "event: inbox\ndata: \n\n"


def _person_of(session: str) -> str | None:
    """Who is logged in with this session right now."""
    if not session:
        return None
    request = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(session)
    user = get_user(request)
    return user.get_username() if user.is_authenticated and user.is_active else None


def _session_key(cookie: bytes) -> str:
    try:
        morsel = SimpleCookie(cookie.decode("latin-1")).get(settings.SESSION_COOKIE_NAME)
    except CookieError:
        return ""
    return "" if morsel is None else morsel.value


async def _gone(receive: Receive, stream: Stream) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    stream.end()


async def _say(send: Send, text: str) -> None:
    await send({"type": "http.response.body", "body": text.encode(), "more_body": True})


async def _refuse(send: Send, status: int, text: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text.encode()})

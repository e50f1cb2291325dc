"""Serves live updates: one stream of server-sent events per open tab, with the names of changed runs only.

The page fetches the change with a GET of its own, which checks permissions. Updates travel over the broker's pub/sub
and may be lost; the next GET is complete anyway. An update is sent only to a person who may read the run, checked
each time with the current session. The server ends a stream when its session has ended, and all streams when the
broker is unreachable.
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
from typing import Any, TypeVar
from uuid import UUID

import redis.asyncio
from django.conf import settings
from django.contrib.auth import get_user
from django.db import close_old_connections, connections
from django.http import HttpRequest
from redis.exceptions import RedisError

from runtime.broker import CHANNEL
from runtime.models import Run
from runtime.ports import wiring
from runtime.ports.access import Actor

log = logging.getLogger(__name__)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Version = tuple[int, str]  # the position and the status of a run

MAX_STREAMS = 1000
MAX_STREAMS_OF_PERSON = 50  # a new one ends the oldest
MAX_WAITING = 1000  # requests in one process
MAX_WAITING_OF_PERSON = 200  # a new one answers the oldest
ASKS_AT_ONCE = 4  # of waiting requests whose runs have changed; Django has more threads
CHECK_SECONDS = (
    5.0  # between two looks at the runs that are waited for, since an update may be lost
)
OFFLINE_CHECK_SECONDS = 1.0  # while the broker is unreachable
BEAT_SECONDS = 15.0  # between lines of a stream, to notice closed connections
RIGHTS_SECONDS = 30.0
PAUSE_SECONDS = 0.5  # a page refreshes at most twice a second
RECONNECT_SECONDS = 2.0

_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
]


@dataclass(slots=True, eq=False)
class Stream:
    """One tab. `changes` are changed runs, each with whether the inbox changed; `over` ends the stream.

    `must_check` asks for a check of the session now.
    """

    session: str
    person: str
    changes: dict[UUID, bool] = field(default_factory=dict)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    must_check: bool = False
    over: bool = False

    def notify(self, runs: dict[UUID, bool]) -> None:
        """Queue these changes for the tab and wake its stream."""
        for run, inbox in runs.items():
            self.changes[run] = self.changes.get(run, False) or inbox
        self.wake.set()

    def check_session(self) -> None:
        """Have the stream check its session now."""
        self.must_check = True
        self.wake.set()

    def end(self) -> None:
        """End the stream."""
        self.over = True
        self.wake.set()


@dataclass(slots=True, eq=False)
class WaitingRequest:
    """A request that waits for a run. `person` may read it; `over` answers it now.

    `version` was that of the run before the request was first answered.
    """

    run: UUID
    person: str = ""
    version: Version | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    over: bool = False

    def end(self) -> None:
        """Answer the request."""
        self.over = True
        self.changed.set()


Member = TypeVar("Member", Stream, WaitingRequest)


class LiveServer:
    """The ASGI application for streams in one web process, with its subscription at the broker."""

    def __init__(self) -> None:
        self._streams: dict[Stream, None] = {}  # the oldest first
        self.connected = asyncio.Event()  # set while the subscription works
        self.is_closing = False  # set when the process ends
        self.asking = asyncio.Semaphore(ASKS_AT_ONCE)
        self._tasks: list[asyncio.Task[None]] = []
        self._listening: dict[UUID, set[WaitingRequest]] = {}
        self._waiting: dict[WaitingRequest, None] = {}  # those that may wait, the oldest first
        # All streams share one thread and one database connection; requests have their own.
        self._reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="live")

    def open(self) -> None:
        """Subscribe to the broker and look at the waited runs, in the running loop."""
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(work) for work in (self._keep_subscribed(), self._keep_checking())
        ]

    def close_streams(self) -> None:
        """End all streams, so that the server can exit."""
        self.is_closing = True
        for task in self._tasks:
            task.cancel()
        self._end_all()
        for wait in list(self._waiting):
            wait.end()

    async def close(self) -> None:
        """Stop, and close the connection to Postgres."""
        self.close_streams()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.wrap_future(self._reader.submit(connections.close_all))

    @contextmanager
    def listen(self, run: UUID) -> Iterator[WaitingRequest]:
        """Provide a wait that is told when this run changes or the process ends."""
        wait = WaitingRequest(run=run)
        self._listening.setdefault(run, set()).add(wait)
        try:
            yield wait
        finally:
            self._waiting.pop(wait, None)
            self._listening[run].discard(wait)
            if not self._listening[run]:
                del self._listening[run]

    async def read_version(self, wait: WaitingRequest) -> None:
        """Remember the version of the run, so that a later change is noticed without an update."""
        versions = await self._read(_read_versions, [wait.run])
        wait.version = (versions or {}).get(wait.run)

    def may_wait(self, wait: WaitingRequest, person: str) -> bool:
        """Count this wait as one of the person, whose oldest is answered if there are too many of them."""
        wait.person = person
        _end_oldest(self._waiting, person, MAX_WAITING_OF_PERSON)
        if self.is_closing or len(self._waiting) >= MAX_WAITING:
            return False
        self._waiting[wait] = None
        return True

    def count_waiting(self) -> int:
        """Count the requests that wait for runs."""
        return len(self._waiting)

    def _wake(self, run: UUID) -> None:
        for wait in self._listening.get(run, ()):
            wait.changed.set()

    async def _keep_checking(self) -> None:
        while True:
            is_connected = self.connected.is_set()
            await asyncio.sleep(CHECK_SECONDS if is_connected else OFFLINE_CHECK_SECONDS)
            await self.check_waiting()

    async def check_waiting(self) -> None:
        """Wake the requests whose runs have changed: one statement for all of them."""
        runs = {wait.run for wait in self._waiting}
        versions = (await self._read(_read_versions, runs) if runs else None) or {}
        for wait in self._waiting:
            if versions.get(wait.run, wait.version) != wait.version:
                wait.version = versions[wait.run]
                wait.changed.set()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve the stream to the person of the session; refuse other methods and requests of other sites."""
        headers = dict(scope["headers"])
        session = _read_session_key(headers.get(b"cookie", b""))
        if scope["method"] != "GET":
            await _refuse(send, 405, "Only GET is possible here.")
        elif headers.get(b"sec-fetch-site", b"same-origin") not in (b"same-origin", b"none"):
            await _refuse(send, 403, "This is for pages of this site.")
        elif (person := await self._read(_find_person, session)) is None:
            await _refuse(send, 401, "Log in first.")
        else:
            _end_oldest(self._streams, person, MAX_STREAMS_OF_PERSON)
            if not self.connected.is_set() or len(self._streams) >= MAX_STREAMS:
                await _refuse(send, 503, "Live updates are unavailable. Try again later.")
                return
            stream = Stream(session=session, person=person)
            watcher = asyncio.get_running_loop().create_task(_end_on_disconnect(receive, stream))
            self._streams[stream] = None
            try:
                with suppress(OSError):  # the tab was closed while a line was sent
                    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
                    await _write(send, ": open\n\n")
                    await self._forward(stream, send)
                    await send({"type": "http.response.body", "body": b""})
            finally:
                self._streams.pop(stream, None)
                watcher.cancel()

    async def _forward(self, stream: Stream, send: Send) -> None:
        loop = asyncio.get_running_loop()
        checked = loop.time()
        while not stream.over:
            with suppress(TimeoutError):
                async with asyncio.timeout(BEAT_SECONDS):
                    await stream.wake.wait()
            stream.wake.clear()
            changes, stream.changes = stream.changes, {}
            must_check, stream.must_check = stream.must_check, False
            if changes or must_check or loop.time() - checked >= RIGHTS_SECONDS:
                names = await self._read(_list_events, stream, changes)
                checked = loop.time()
                if names is None:
                    return
                for name in names:
                    await _write(send, name)
                await asyncio.sleep(PAUSE_SECONDS)
            elif not stream.over:
                await _write(send, ": still here\n\n")

    async def _keep_subscribed(self) -> None:
        while True:
            try:
                await self._subscribe()
            except (RedisError, OSError) as exc:
                log.warning("Live updates stop until the broker is reachable: %s", exc)
            except Exception:
                log.exception("Live updates stop for %g s", RECONNECT_SECONDS)
            finally:
                self.connected.clear()
                self._end_all()  # pages poll until they can reconnect
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _subscribe(self) -> None:
        broker = redis.asyncio.Redis.from_url(settings.REDIS_URL, socket_connect_timeout=2)
        async with broker, broker.pubsub() as subscription:
            await subscription.subscribe(CHANNEL)
            self.connected.set()
            while True:
                # Ping after 5 s of silence: without it a frozen broker would block the subscription forever.
                message = await subscription.get_message(
                    ignore_subscribe_messages=True, timeout=5.0
                )
                if message is None:
                    async with asyncio.timeout(5.0):
                        await subscription.ping()
                else:
                    self._receive(message.get("data"))

    def _receive(self, data: Any) -> None:
        """Handle a published message. Anyone with broker access can publish, so malformed messages are ignored."""
        try:
            update = json.loads(data)
            person = update.get("person")
            runs = {UUID(run): inbox is True for run, inbox in update.get("runs", {}).items()}
        except (ValueError, TypeError, AttributeError, RecursionError):
            return
        for run in runs:
            self._wake(run)
        for stream in list(self._streams):
            if stream.person == person:
                stream.check_session()
            elif runs:
                stream.notify(runs)

    def _end_all(self) -> None:
        for stream in list(self._streams):
            stream.end()

    async def _read(self, read: Callable[..., Any], *arguments: Any) -> Any:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._reader, _with_database, read, *arguments)


def _end_oldest(members: dict[Member, None], person: str, limit: int) -> None:
    """End the oldest of this person, so that there is room for one within the limit."""
    of_person = [member for member in members if member.person == person]
    for oldest in of_person[: max(0, len(of_person) - limit + 1)]:
        members.pop(oldest)  # now: a client that reads nothing delays the end
        oldest.end()


def _with_database(read: Callable[..., Any], *arguments: Any) -> Any:
    close_old_connections()
    try:
        return read(*arguments)
    except Exception as exc:  # of the database client; the page polls again by itself
        log.warning("Live update not sent: %s", exc)
        return None
    finally:
        close_old_connections()


def _read_versions(runs: Iterable[UUID]) -> dict[UUID, Version]:
    rows = Run.objects.filter(pk__in=list(runs)).values_list("pk", "position", "status")
    return {run: (position, status) for run, position, status in rows}


def _list_events(stream: Stream, changes: dict[UUID, bool]) -> list[str] | None:
    """Return the events that the person may read; None if the session has ended."""
    if _find_person(stream.session) != stream.person:
        return None
    readable = wiring.resolve_access().select_readable_runs(Actor(person=stream.person))
    runs = set(Run.objects.filter(readable, pk__in=changes).values_list("pk", flat=True))
    inbox = ["event: inbox\ndata: \n\n"] if any(changes[run] for run in runs) else []
    return inbox + [f"event: run\ndata: {run}\n\n" for run in runs]


def _find_person(session: str) -> str | None:
    """Return the username of the session; None if it has ended."""
    if not session:
        return None
    request = HttpRequest()
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(session)
    user = get_user(request)
    return user.get_username() if user.is_authenticated and user.is_active else None


def _read_session_key(cookie: bytes) -> str:
    try:
        morsel = SimpleCookie(cookie.decode("latin-1")).get(settings.SESSION_COOKIE_NAME)
    except CookieError:
        return ""
    return "" if morsel is None else morsel.value


async def _end_on_disconnect(receive: Receive, stream: Stream) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    stream.end()


async def _write(send: Send, text: str) -> None:
    await send({"type": "http.response.body", "body": text.encode(), "more_body": True})


async def _refuse(send: Send, status: int, text: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text.encode()})

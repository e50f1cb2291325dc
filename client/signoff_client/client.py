"""The client in its synchronous and asynchronous forms, which differ in how they send and sleep.

Each act is written once, as a coroutine. Those of the synchronous client never suspend: each step blocks.
"""

import asyncio
import functools
import math
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from json import JSONDecodeError
from typing import Any, Concatenate, ParamSpec, Self, TypedDict, TypeVar, Unpack, cast
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import httpx2
from pydantic import TypeAdapter, ValidationError

from signoff_client import routes
from signoff_client.errors import NoAnswer, NotInTime, make_refusal

P = ParamSpec("P")
T = TypeVar("T")

RETRY_SECONDS = 30.0  # in all, with the pauses
WAIT_SECONDS = 30  # of one long poll
WATCH_SECONDS = 2  # of one that looks for changes before the end
POLL_SECONDS = 1.0  # between two looks, where the server cannot tell of a change
TIMEOUT = httpx2.Timeout(10.0, read=WAIT_SECONDS + 15.0)
LOCAL = ("localhost", "127.0.0.1", "::1")
_PAUSE_SECONDS = (0.1, 2.0)  # before the first retry, and at most
_BUSY = (429, 503)  # nothing was done
_LOST = (502, 504)  # a proxy answers, and it may have been done
_PAGE = 200


class DecisionFields(TypedDict, total=False):
    """What some verdicts need besides: see the operation `decide` in the API's own documentation."""

    confirm: str | None
    result: Any
    arguments: dict[str, Any]
    grant: dict[str, Any]


def check_url(url: str) -> str:
    """Return the address without a slash at its end. Raise ValueError if a token sent there could be read by others."""
    parts = urlsplit(url)
    extra = (parts.username, parts.password, parts.path.strip("/"), parts.query, parts.fragment)
    if not parts.netloc or any(extra):
        raise ValueError("the address of Signoff has the form https://signoff.example.com")
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in LOCAL):
        raise ValueError("the address of Signoff must begin with https://, except on this machine")
    return url.rstrip("/")


class _Connection(ABC):
    """Sends requests to an address, with the headers with the token, which nothing prints."""

    def __init__(self, url: str, token: str) -> None:
        if not token or not token.isascii() or not token.isprintable():
            raise ValueError("the token is empty, or has characters that no token has")
        self.url = check_url(url)
        self._headers = {"Authorization": f"Bearer {token}", "User-Agent": "signoff-client"}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    @abstractmethod
    async def _request(self, **arguments: Any) -> httpx2.Response:
        """Send one request."""

    @abstractmethod
    async def _sleep(self, seconds: float) -> None:
        """Sleep."""

    async def _send(self, route: routes.Route[T], *, id: Any = None, **values: Any) -> T:
        """Send a request until it is answered. Raise Refusal, or NoAnswer if 30 seconds did not suffice."""
        path = route.path_of(id)
        arguments = {"url": f"{self.url}/api/v1{path}", **route.arguments(values)}
        deadline = time.monotonic() + RETRY_SECONDS
        pause, longest = _PAUSE_SECONDS
        while True:
            wait = pause
            try:
                response = await self._request(headers=self._headers, **arguments)
            except httpx2.TransportError as exc:
                may_be_done = not isinstance(exc, httpx2.ConnectError | httpx2.ConnectTimeout)
                problem = f"did not answer: {exc}"
            else:
                if response.status_code not in (*_BUSY, *_LOST):
                    return _read(route, path, response)
                may_be_done = response.status_code not in _BUSY
                problem = f"answers {response.status_code}"
                after = response.headers.get("Retry-After", "")  # seconds; a date counts as none
                wait = max(pause, float(after) if after.isdecimal() else 0.0)
            may_repeat = route.repeatable or not may_be_done
            if not may_repeat or time.monotonic() + wait > deadline:
                raise NoAnswer(f"the server {problem}")
            await self._sleep(wait)
            pause = min(2 * pause, longest)


class AsyncSignoff(_Connection):
    """The client for asyncio, with the methods of Signoff."""

    def __init__(self, url: str, token: str, *, http: httpx2.AsyncClient | None = None) -> None:
        super().__init__(url, token)
        self._http = http or httpx2.AsyncClient(timeout=TIMEOUT, follow_redirects=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def _request(self, **arguments: Any) -> httpx2.Response:
        return await self._http.request(**arguments)

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def start(
        self,
        agent: str,
        input: Any,
        *,
        business_key: str | None = None,
        thread: str | None = None,
        budget: dict[str, Any] | None = None,
    ) -> routes.Run:
        """Start a run, or return the one of this business key.

        Without one it gets a random one, so that a repeated request starts no second run.
        """
        key = business_key or f"client-{uuid4().hex}"
        values = {"agent": agent, "input": input, "thread": thread, "budget": budget}
        return await self._send(routes.START_RUN, business_key=key, **values)

    async def wait(
        self,
        run: UUID | str,
        *,
        seconds: float | None = None,
        on_change: Callable[[routes.Run], None] | None = None,
    ) -> routes.Run:
        """Wait until the run has ended, or raise NotInTime. Each new status or gate is told to `on_change`.

        A long poll ends with the run; earlier changes are looked for every 2 seconds, if they are asked for.
        """
        longest = WAIT_SECONDS if on_change is None else WATCH_SECONDS
        deadline = math.inf if seconds is None else time.monotonic() + seconds
        last_state = None
        while True:
            sent_at = time.monotonic()
            poll = f"{max(1, int(min(longest, deadline - sent_at)))}s"
            state = await self._send(routes.READ_RUN, id=run, wait=poll, until="ended")
            if on_change is not None and (state.status, state.gates) != last_state:
                last_state = (state.status, state.gates)
                on_change(state)
            if state.ended_at is not None:
                return state
            if time.monotonic() >= deadline:
                raise NotInTime(f"the run is still {state.status}")
            if time.monotonic() - sent_at < POLL_SECONDS:  # the server did not wait
                await self._sleep(POLL_SECONDS)

    async def read_run(self, run: UUID | str) -> routes.Run:
        """Read a run."""
        return await self._send(routes.READ_RUN, id=run)

    async def list_runs(
        self, *, limit: int = 50, cursor: str | None = None
    ) -> routes.Page[routes.Run]:
        """Read a page of the runs, the newest first."""
        return await self._send(routes.LIST_RUNS, limit=limit, cursor=cursor)

    async def read_approval(self, approval: UUID | str) -> routes.Approval:
        """Read a request."""
        return await self._send(routes.READ_APPROVAL, id=approval)

    async def list_approvals(
        self, *, status: str | None = "pending", limit: int = 50, cursor: str | None = None
    ) -> routes.Page[routes.Approval]:
        """Read a page of the requests in this status, the oldest first."""
        return await self._send(routes.LIST_APPROVALS, status=status, limit=limit, cursor=cursor)

    async def decide(
        self,
        approval: routes.Approval,
        verdict: str,
        *,
        reason: str = "",
        **fields: Unpack[DecisionFields],
    ) -> routes.Approval:
        """Decide the request as the caller saw it: its digest is sent, and a changed request is refused.

        After NoAnswer, read it again, or decide again: the same decision twice counts once.
        """
        values = {"verdict": verdict, "digest": approval.digest, "reason": reason, **fields}
        return await self._send(routes.DECIDE, id=approval.id, **values)

    async def export(self, run: UUID | str) -> bytes:
        """End a run here, and return its signed file for another installation."""
        return await self._send(routes.EXPORT_RUN, id=run)

    async def tail(self, run: UUID | str, *, after: int = 0) -> AsyncIterator[routes.JournalEntry]:
        """Yield the entries of a run as they come, until it ends."""
        while True:
            # Read before its entries, or the last are missed.
            state = await self._send(routes.READ_RUN, id=run)
            page = await self._send(routes.READ_JOURNAL, id=run, limit=_PAGE, cursor=after)
            for entry in page.items:
                yield entry
                after = entry.position
            if state.ended_at is not None and page.next is None:
                return
            if not page.items:
                await self._sleep(POLL_SECONDS)


def _make_blocking(
    method: Callable[Concatenate[AsyncSignoff, P], Coroutine[Any, Any, T]],
) -> "Callable[Concatenate[Signoff, P], T]":
    """Return the method of the asynchronous client as one that blocks."""

    @functools.wraps(method)
    def act(client: "Signoff", /, *args: P.args, **fields: P.kwargs) -> T:
        return _run_awaitable(method(cast("AsyncSignoff", client), *args, **fields))

    return act


def _run_awaitable(awaitable: Awaitable[T]) -> T:
    """Run what never suspends."""
    try:
        next(awaitable.__await__())
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("a method of the synchronous client suspended")


class Signoff(_Connection):
    """The client. `token` is one of a person, who has the rights of what the client does.

    A request is sent again for up to 30 seconds while the server does not answer, except a decision whose answer is
    lost. Methods raise Refusal, by its kind, and NoAnswer.
    """

    def __init__(self, url: str, token: str, *, http: httpx2.Client | None = None) -> None:
        super().__init__(url, token)
        self._http = http or httpx2.Client(timeout=TIMEOUT, follow_redirects=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    async def _request(self, **arguments: Any) -> httpx2.Response:
        return self._http.request(**arguments)

    async def _sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - this client blocks

    start = _make_blocking(AsyncSignoff.start)
    wait = _make_blocking(AsyncSignoff.wait)
    read_run = _make_blocking(AsyncSignoff.read_run)
    list_runs = _make_blocking(AsyncSignoff.list_runs)
    read_approval = _make_blocking(AsyncSignoff.read_approval)
    list_approvals = _make_blocking(AsyncSignoff.list_approvals)
    decide = _make_blocking(AsyncSignoff.decide)
    export = _make_blocking(AsyncSignoff.export)

    def tail(self, run: UUID | str, *, after: int = 0) -> Iterator[routes.JournalEntry]:
        """Yield the entries of a run as they come, until it ends."""
        entries = AsyncSignoff.tail(cast("AsyncSignoff", self), run, after=after)
        with suppress(StopAsyncIteration):
            while True:
                yield _run_awaitable(anext(entries))


def _read(route: routes.Route[T], path: str, response: httpx2.Response) -> T:
    """Return the value of an answer. Raise Refusal, or NoAnswer if it is not one of the API."""
    if response.is_success and isinstance(response.content, route.answer):
        return response.content
    if response.is_success:
        try:
            return TypeAdapter(route.answer).validate_json(response.content)
        except ValidationError as exc:
            raise NoAnswer(f"the answer to {path} is not one of Signoff: {exc}") from None
    try:
        facts = response.json()
    except (JSONDecodeError, UnicodeDecodeError):
        facts = {}
    raise make_refusal(response.status_code, facts if isinstance(facts, dict) else {})

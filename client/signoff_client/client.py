"""The client in its synchronous and asynchronous forms, which differ in how they send and sleep."""

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Concatenate, ParamSpec, Self, TypeVar
from urllib.parse import urlsplit
from uuid import UUID

import httpx2

from signoff_client import flows
from signoff_client.flows import Flow, Pause, Reply, Step
from signoff_client.routes import ApiRequest, JournalEntry

P = ParamSpec("P")
T = TypeVar("T")

TIMEOUT = httpx2.Timeout(10.0, read=flows.WAIT_SECONDS + 15.0)
LOCAL = ("localhost", "127.0.0.1", "::1")


def checked_url(url: str) -> str:
    """Return the address without a slash at its end. Raise ValueError if a token sent there could be read by others."""
    parts = urlsplit(url)
    if not parts.netloc or parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("the address of Signoff has the form https://signoff.example.com")
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in LOCAL):
        raise ValueError("the address of Signoff must begin with https://, except on this machine")
    return url.rstrip("/")


class _Connection:
    """The address, and the headers with the token, which nothing prints."""

    def __init__(self, url: str, token: str) -> None:
        if not token or not token.isascii() or not token.isprintable():
            raise ValueError("the token is empty, or has characters that no token has")
        self.url = checked_url(url)
        self._headers = {"Authorization": f"Bearer {token}", "User-Agent": "signoff-client"}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def _arguments(self, request: ApiRequest[Any]) -> dict[str, Any]:
        method = request.route.method
        return {
            "method": method,
            "url": f"{self.url}/api/v1{request.path}",
            "params": dict(request.query),
            "json": dict(request.body) if method == "POST" else None,
            "headers": self._headers,
        }


def _blocking(flow: Callable[P, Flow[T]]) -> "Callable[Concatenate[Signoff, P], T]":
    """Return the flow as a method that blocks."""

    @functools.wraps(flow)
    def act(client: "Signoff", /, *args: P.args, **fields: P.kwargs) -> T:
        return client.run(flow(*args, **fields))

    return act


def _awaited(
    flow: Callable[P, Flow[T]],
) -> "Callable[Concatenate[AsyncSignoff, P], Coroutine[Any, Any, T]]":
    """Return the flow as a method that is awaited."""

    @functools.wraps(flow)
    async def act(client: "AsyncSignoff", /, *args: P.args, **fields: P.kwargs) -> T:
        return await client.run(flow(*args, **fields))

    return act


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

    start = _blocking(flows.start)
    wait = _blocking(flows.wait)
    read_run = _blocking(flows.read_run)
    list_runs = _blocking(flows.list_runs)
    read_approval = _blocking(flows.read_approval)
    list_approvals = _blocking(flows.list_approvals)
    decide = _blocking(flows.decide)
    export = _blocking(flows.export)

    def tail(self, run: UUID | str, *, after: int = 0) -> Iterator[JournalEntry]:
        """Yield the entries of a run as they come, until it ends."""
        is_last = False
        while not is_last:
            entries, is_last = self.run(flows.next_entries(run, after))
            yield from entries
            after = entries[-1].position if entries else after

    def run(self, flow: Flow[T]) -> T:
        """Send the requests of a flow, and return its result."""
        reply: Reply = None
        try:
            while True:
                reply = self._take(flow.send(reply))
        except StopIteration as end:
            result: T = end.value
            return result

    def _take(self, step: Step) -> Reply:
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            return None
        try:
            return self._http.request(**self._arguments(step))
        except httpx2.TransportError as exc:
            return exc


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

    start = _awaited(flows.start)
    wait = _awaited(flows.wait)
    read_run = _awaited(flows.read_run)
    list_runs = _awaited(flows.list_runs)
    read_approval = _awaited(flows.read_approval)
    list_approvals = _awaited(flows.list_approvals)
    decide = _awaited(flows.decide)
    export = _awaited(flows.export)

    async def tail(self, run: UUID | str, *, after: int = 0) -> AsyncIterator[JournalEntry]:
        """Yield the entries of a run as they come, until it ends."""
        is_last = False
        while not is_last:
            entries, is_last = await self.run(flows.next_entries(run, after))
            for entry in entries:
                yield entry
            after = entries[-1].position if entries else after

    async def run(self, flow: Flow[T]) -> T:
        """Send the requests of a flow, and return its result."""
        reply: Reply = None
        try:
            while True:
                reply = await self._take(flow.send(reply))
        except StopIteration as end:
            result: T = end.value
            return result

    async def _take(self, step: Step) -> Reply:
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
            return None
        try:
            return await self._http.request(**self._arguments(step))
        except httpx2.TransportError as exc:
            return exc

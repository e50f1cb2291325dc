"""The client in its synchronous and asynchronous forms, which differ in how they send and sleep."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, Self, TypeVar, Unpack
from urllib.parse import urlsplit
from uuid import UUID

import httpx2

from signoff_client import flows
from signoff_client.answers import Approval, ApprovalPage, JournalEntry, Run, RunPage
from signoff_client.flows import DecisionFields, Flow, OnChange, Pause, Reply, Step
from signoff_client.routes import (
    EXPORT_RUN,
    LIST_APPROVALS,
    LIST_RUNS,
    READ_APPROVAL,
    READ_RUN,
    ApiRequest,
)

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

    def start(
        self,
        agent: str,
        input: Any,
        *,
        business_key: str | None = None,
        thread: str | None = None,
        budget: dict[str, Any] | None = None,
    ) -> Run:
        """Start a run, or return the one of this business key."""
        return self._run(flows.start(agent, input, business_key, thread, budget))

    def wait(
        self,
        run: UUID | str,
        *,
        seconds: float | None = None,
        on_change: OnChange | None = None,
    ) -> Run:
        """Wait until the run has ended, or raise NotInTime. Each new status or gate is told to `on_change`."""
        return self._run(flows.wait(run, seconds, on_change))

    def read_run(self, run: UUID | str) -> Run:
        """Read a run."""
        return self._run(flows.send(READ_RUN.request(id=run)))

    def list_runs(self, *, limit: int = 50, cursor: str | None = None) -> RunPage:
        """Read a page of the runs, the newest first."""
        return self._run(flows.send(LIST_RUNS.request(limit=limit, cursor=cursor)))

    def read_approval(self, approval: UUID | str) -> Approval:
        """Read a request."""
        return self._run(flows.send(READ_APPROVAL.request(id=approval)))

    def list_approvals(
        self, *, status: str | None = "pending", limit: int = 50, cursor: str | None = None
    ) -> ApprovalPage:
        """Read a page of the requests in this status, the oldest first."""
        return self._run(
            flows.send(LIST_APPROVALS.request(status=status, limit=limit, cursor=cursor))
        )

    def decide(
        self,
        approval: Approval,
        verdict: str,
        *,
        reason: str = "",
        **fields: Unpack[DecisionFields],
    ) -> Approval:
        """Decide the request as it was read. After NoAnswer, read it again: the decision may count."""
        return self._run(flows.decide(approval, verdict, reason, fields))

    def tail(self, run: UUID | str, *, after: int = 0) -> Iterator[JournalEntry]:
        """Yield the entries of a run as they come, until it ends."""
        is_last = False
        while not is_last:
            entries, is_last = self._run(flows.next_entries(run, after))
            yield from entries
            after = entries[-1].position if entries else after

    def export(self, run: UUID | str) -> bytes:
        """End a run here, and return its signed file for another installation."""
        return self._run(flows.send(EXPORT_RUN.request(id=run)))

    def _run(self, flow: Flow[T]) -> T:
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

    async def start(
        self,
        agent: str,
        input: Any,
        *,
        business_key: str | None = None,
        thread: str | None = None,
        budget: dict[str, Any] | None = None,
    ) -> Run:
        """Start a run, or return the one of this business key."""
        return await self._run(flows.start(agent, input, business_key, thread, budget))

    async def wait(
        self,
        run: UUID | str,
        *,
        seconds: float | None = None,
        on_change: OnChange | None = None,
    ) -> Run:
        """Wait until the run has ended, or raise NotInTime. Each new status or gate is told to `on_change`."""
        return await self._run(flows.wait(run, seconds, on_change))

    async def read_run(self, run: UUID | str) -> Run:
        """Read a run."""
        return await self._run(flows.send(READ_RUN.request(id=run)))

    async def list_runs(self, *, limit: int = 50, cursor: str | None = None) -> RunPage:
        """Read a page of the runs, the newest first."""
        return await self._run(flows.send(LIST_RUNS.request(limit=limit, cursor=cursor)))

    async def read_approval(self, approval: UUID | str) -> Approval:
        """Read a request."""
        return await self._run(flows.send(READ_APPROVAL.request(id=approval)))

    async def list_approvals(
        self, *, status: str | None = "pending", limit: int = 50, cursor: str | None = None
    ) -> ApprovalPage:
        """Read a page of the requests in this status, the oldest first."""
        return await self._run(
            flows.send(LIST_APPROVALS.request(status=status, limit=limit, cursor=cursor))
        )

    async def decide(
        self,
        approval: Approval,
        verdict: str,
        *,
        reason: str = "",
        **fields: Unpack[DecisionFields],
    ) -> Approval:
        """Decide the request as it was read. After NoAnswer, read it again: the decision may count."""
        return await self._run(flows.decide(approval, verdict, reason, fields))

    async def tail(self, run: UUID | str, *, after: int = 0) -> AsyncIterator[JournalEntry]:
        """Yield the entries of a run as they come, until it ends."""
        is_last = False
        while not is_last:
            entries, is_last = await self._run(flows.next_entries(run, after))
            for entry in entries:
                yield entry
            after = entries[-1].position if entries else after

    async def export(self, run: UUID | str) -> bytes:
        """End a run here, and return its signed file for another installation."""
        return await self._run(flows.send(EXPORT_RUN.request(id=run)))

    async def _run(self, flow: Flow[T]) -> T:
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

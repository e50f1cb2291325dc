"""The whole way: a client of the protocol, the web on loopback, a worker that the test advances, an upstream server."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client as McpClient
from mcp.client.streamable_http import streamable_http_client

from approvals.people import tokens
from approvals.rights.principals import ALL_SCOPES
from tests.agents.tools.test_mcp import accept
from tests.support.gateway_desk import TEA, Desk, gateway
from tests.support.mcp_server import Tickets, served, tickets
from tests.support.seeds import Cast

SECONDS = 60.0


class Assistants:
    """Clients of people, each with a token of its own, in threads."""

    def __init__(self, url: str, pool: ThreadPoolExecutor) -> None:
        self.url, self.pool = url, pool

    def connect(self, person: Any, **headers: str) -> "Assistant":
        _, secret = tokens.create(person, ALL_SCOPES)
        return Assistant(self, {"Authorization": f"Bearer {secret}", **headers})


class Assistant:
    """One client, with one token."""

    def __init__(self, assistants: Assistants, headers: dict[str, str]) -> None:
        self.assistants, self.headers = assistants, headers
        self.loop: asyncio.AbstractEventLoop | None = None

    def use(self, act: Callable[[McpClient], Coroutine[Any, Any, Any]]) -> Future[Any]:
        """Do this with a new connection."""

        async def connected() -> Any:
            async with (
                httpx2.AsyncClient(headers=self.headers, trust_env=False, timeout=SECONDS) as http,
                McpClient(streamable_http_client(self.assistants.url, http_client=http)) as client,
            ):
                return await act(client)

        return self.assistants.pool.submit(asyncio.run, connected())

    def call(self, name: str = "Create-Ticket", arguments: Any = None) -> Future[Any]:
        """Call a tool, by default the one that writes."""
        return self.use(
            lambda client: client.call_tool(name, TEA if arguments is None else arguments)
        )

    def tools(self) -> dict[str, Any]:
        listed = self.use(lambda client: client.list_tools()).result(SECONDS)
        return {tool.name: tool for tool in listed.tools}


@pytest.fixture
def upstream() -> Iterator[Tickets]:
    with served(tickets()) as system:
        yield system


@pytest.fixture
def desk(by_hand: None, cast: Cast, upstream: Tickets, tmp_path: Path) -> Iterator[Desk]:
    worker = Desk(gateway(upstream.url, accept(upstream, tmp_path / "tickets.json")))
    yield worker
    worker.close()


@pytest.fixture
def assistants(web: str, desk: Desk) -> Iterator[Assistants]:
    with ThreadPoolExecutor() as pool:
        yield Assistants(f"{web}/api/mcp/tickets/", pool)

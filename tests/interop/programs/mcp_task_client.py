"""One act of a client of the package mcp 1.x, which has tasks, with a connection of its own."""

import asyncio
import json
import sys

import httpx
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult


async def act(session, name, argument):
    """Return the results of the act."""
    tasks = session.experimental
    match name:
        case "call":
            created = await tasks.call_tool_as_task("Create-Ticket", json.loads(argument))
            return [created.task]
        case "poll":
            return [status async for status in tasks.poll_task(argument)]
        case "result":
            return [await tasks.get_task_result(argument, CallToolResult)]
        case "cancel":
            return [await tasks.cancel_task(argument)]
        case _:
            tools = (await session.list_tools()).tools
            return [session.get_server_capabilities(), *(tool.execution for tool in tools)]


async def use(url, token, name, argument):
    """Connect, and do one act."""
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx.AsyncClient(headers=headers, trust_env=False, timeout=60) as http,
        streamable_http_client(url, http_client=http) as (read, write, _),
        ClientSession(read, write) as session,
    ):
        assert (await session.initialize()).protocolVersion == "2025-11-25"
        return await act(session, name, argument)


results = asyncio.run(use(*sys.argv[1:]))
json.dump([result and result.model_dump(mode="json") for result in results], sys.stdout)

"""A real MCP server on loopback: a small ticket system."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from mcp import types
from mcp.server.lowlevel import Server

SCHEMA = {
    "type": "object",
    "properties": {"title": {"type": "string"}, "priority": {"type": "integer", "maximum": 5}},
    "required": ["title"],
    "additionalProperties": False,
}


@dataclass(slots=True)
class Tickets:
    """The ticket system: its tools may be changed, and it remembers requests and calls.

    `status` is an HTTP status with which it answers all requests, `broken` cuts the connection of a call.
    """

    url: str = ""
    tools: dict[str, types.Tool] = field(default_factory=dict)
    result: types.CallToolResult | None = None
    token: str = ""
    status: int = 0
    broken: bool = False
    headers: list[dict[str, str]] = field(default_factory=list)
    calls: list[tuple[str, dict[str, Any], dict[str, Any]]] = field(default_factory=list)

    def describe(
        self, name: str, description: str, schema: Any = None, output: Any = None, **hints: bool
    ) -> None:
        """Offer a tool, or change it."""
        self.tools[name] = types.Tool(
            name=name,
            description=description,
            input_schema=schema or SCHEMA,
            output_schema=output,
            annotations=types.ToolAnnotations(**hints),
        )

    def server(self) -> Server[Any]:
        """Return the server of the library."""

        async def list_tools(context: Any, params: Any) -> Any:
            return types.ListToolsResult(tools=[*self.tools.values()])

        async def call_tool(context: Any, params: Any) -> Any:
            meta = dict(params.meta or {})
            self.calls.append((params.name, params.arguments or {}, meta))
            text = f"made {(params.arguments or {}).get('title')}"
            return self.result or types.CallToolResult(
                content=[types.TextContent(type="text", text=text)]
            )

        return Server("tickets", on_list_tools=list_tools, on_call_tool=call_tool)


def tickets() -> Tickets:
    """Return a ticket system with a tool that reads and one that writes."""
    system = Tickets()
    system.describe("search", "Find tickets", read_only_hint=True)
    system.describe("Create-Ticket", "Create a ticket", read_only_hint=True)
    return system


@contextmanager
def served(system: Tickets) -> Iterator[Tickets]:
    """Serve the ticket system by streamable HTTP for as long as the block lasts."""
    app = system.server().streamable_http_app()

    async def recorded(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            headers = {name.decode(): value.decode() for name, value in scope["headers"]}
            system.headers.append(headers)
            refused = system.token and headers.get("authorization") != f"Bearer {system.token}"
            if status := 401 if refused else system.status:
                await send({"type": "http.response.start", "status": status, "headers": []})
                await send({"type": "http.response.body", "body": b"no"})
                return
            send = _cut(system, send)
        await app(scope, receive, send)

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        system.url = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        config = uvicorn.Config(recorded, log_config=None, lifespan="on")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield system
        finally:
            server.should_exit = True
            thread.join()


def _cut(system: Tickets, send: Any) -> Any:
    """Drop the answer of a call if the system is broken."""

    async def cutting(message: Any) -> None:
        if system.broken and system.calls:
            raise ConnectionResetError
        await send(message)

    return cutting

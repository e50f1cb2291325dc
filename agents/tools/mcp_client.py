"""Talks to MCP servers: lists their tools, and calls one if its definition is the accepted one.

The definition is compared before each call, so a server cannot change a tool that people approved. The meaning of
a failure follows from the transport's own record of the request: until the call itself was sent, nothing happened.
"""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import httpx2
from mcp import Client, MCPError, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from agents.errors import CredentialRefused, DefinitionChanged, NotDone, ToolError
from agents.sdk import FailureCause, ToolContext
from agents.tools import http_client
from agents.tools.mcp_definitions import Definition, McpServer
from runtime.core.values.errors import NotJson
from runtime.core.values.json_values import read_json, require_json
from runtime.core.values.limits import MAX_RESULT
from runtime.core.values.texts import escape_text, fill_placeholders
from runtime.network import retry_after_seconds

KEY = "signoff/idempotency-key"  # in `_meta` of a call: the same for every attempt at it
MAX_LISTED = 1_000  # tools of a server
MAX_ANSWER = MAX_RESULT + 64 * 1024  # bytes of one HTTP answer
QUOTED = 2_000  # characters of an answer that an error quotes
CLOSING_SECONDS = 5.0  # for a server to let go of a connection, after its answer
# The server refused the call before its tool ran.
_REFUSALS = frozenset({types.METHOD_NOT_FOUND, types.INVALID_PARAMS, types.HEADER_MISMATCH})


@dataclass(slots=True)
class Exchange:
    """The record of one call: how far its request went, by the transport, and its result.

    `calling` is set when the next request is the call itself.
    """

    server: McpServer
    calling: bool = False
    sent: bool = False
    status: int = 0
    retry_after: str | None = None
    refused: Exception | None = None
    result: types.CallToolResult | None = None
    problem: Exception | None = None


async def list_definitions(
    server: McpServer, credentials: Mapping[str, str], seconds: float
) -> list[tuple[Definition, dict[str, bool]]]:
    """Return the definition of each tool of a server, and the hints that the server gives about it.

    Raise NotDone if it cannot be reached, or if a definition is not JSON.
    """
    exchange, listed = Exchange(server), None
    try:
        async with _connect(exchange, credentials, seconds) as client:
            listed = await _list_tools(client)
    except Exception as exc:
        if listed is None:
            raise _derive_error(exchange, exc) from exc
    definitions = []
    for tool in listed:
        hints = tool.annotations.model_dump(by_alias=True) if tool.annotations else {}
        booleans = {name: value for name, value in hints.items() if isinstance(value, bool)}
        definition = _build_definition(tool)
        try:
            require_json(definition.as_json, definition.name)
        except NotJson as exc:  # no file could keep it
            raise NotDone(f"{server.label}: {exc}", cause=FailureCause.SETUP) from exc
        definitions.append((definition, booleans))
    return definitions


async def call_tool(
    server: McpServer, definition: Definition, context: ToolContext, arguments: Mapping[str, Any]
) -> Any:
    """Call a tool and return its result as JSON.

    Raise DefinitionChanged, NotDone or CredentialRefused if certainly nothing happened, and ToolError if the server
    refuses. Any other error leaves the outcome unknown.
    """
    exchange = Exchange(server)

    async def connect_and_call() -> None:
        try:
            async with _connect(exchange, context.credentials, context.remaining()) as client:
                try:
                    await _call(client, definition, context.key, arguments, exchange)
                except (
                    Exception
                ) as exc:  # it would leave the connection's task group as another one
                    exchange.problem = exc
        except Exception as exc:
            exchange.problem = exchange.problem or exc

    task = asyncio.ensure_future(connect_and_call())
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:  # at the deadline, at which the task ends by itself
        await asyncio.wait([task])
    if exchange.result is not None:  # also if the connection was not closed well
        return _read(exchange.result)
    assert exchange.problem is not None
    raise _derive_error(exchange, exchange.problem) from exchange.problem


async def _call(
    client: Client,
    definition: Definition,
    key: str,
    arguments: Mapping[str, Any],
    exchange: Exchange,
) -> None:
    """Call the tool if it is as it was accepted, and record its result."""
    listed = {tool.name: tool for tool in await _list_tools(client)}
    tool = listed.get(definition.name)
    if tool is None or _build_definition(tool).digest != definition.digest:
        change = "describes it differently than it was accepted" if tool else "does not have it now"
        raise DefinitionChanged(
            f"The tool {definition.name} was not called, because its MCP server {change}: see what changed with"
            " `manage.py mcp_tools`, and accept it or take the tool out; then start the workers again."
        )
    exchange.calling, exchange.sent = True, bool(exchange.server.command)
    # Not Client.call_tool, which sends a call again that the server refused for its headers, nor that of the
    # session, which checks the result by a schema of the server: that may take for ever.
    params = types.CallToolRequestParams(
        name=definition.name, arguments=dict(arguments), _meta={KEY: key}
    )
    exchange.result = await client.session.send_request(
        types.CallToolRequest(params=params), types.CallToolResult
    )


async def _list_tools(client: Client) -> list[types.Tool]:
    listed, cursor = list[types.Tool](), None
    while True:
        page = await client.list_tools(cursor=cursor, cache_mode="bypass")
        listed += page.tools
        cursor = page.next_cursor
        if not cursor:
            return listed
        if len(listed) > MAX_LISTED:
            raise NotDone(
                f"the server lists more than {MAX_LISTED} tools", cause=FailureCause.SETUP
            )


@asynccontextmanager
async def _connect(
    exchange: Exchange, credentials: Mapping[str, str], seconds: float
) -> AsyncIterator[Client]:
    server = exchange.server
    values = {name: fill_placeholders(text, credentials) for name, text in server.values.items()}
    async with AsyncExitStack() as stack:
        # A limit of asyncio would also cut the end of a command that has to be killed.
        limit = stack.enter_context(anyio.fail_after(seconds))
        if server.command:
            command, *words = server.command
            parameters = StdioServerParameters(command=command, args=words, env=values)
            # The server's own log may hold secrets.
            transport = stdio_client(parameters, errlog=subprocess.DEVNULL)
        else:
            http_client.require_headers(values)
            http = httpx2.AsyncClient(
                transport=_McpTransport(exchange, values, seconds),
                headers={**values, "Accept-Encoding": "identity"},
                timeout=seconds,
                trust_env=False,
            )
            await stack.enter_async_context(http)
            transport = streamable_http_client(
                server.url, http_client=http, max_sse_event_size=MAX_ANSWER
            )
        yield await stack.enter_async_context(
            Client(transport, cache=None, read_timeout_seconds=seconds)
        )
        limit.deadline = min(limit.deadline, anyio.current_time() + CLOSING_SECONDS)


class _McpTransport(httpx2.AsyncHTTPTransport):
    """Connects to the server alone, at a checked address, and records how far a call went."""

    def __init__(self, exchange: Exchange, headers: Mapping[str, str], seconds: float) -> None:
        super().__init__(**http_client.build_connection_options())
        server = exchange.server
        self._check = http_client.RequestCheck(
            (http_client.parse_site(server.url),),
            private=server.private,
            seconds=seconds,
            own_headers=headers,
        )
        self._exchange = exchange

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        exchange = self._exchange
        is_call = exchange.calling and request.method == "POST"
        exchange.calling = exchange.calling and not is_call
        is_recorded = request.method == "POST" and (is_call or not exchange.sent)
        if is_recorded:
            exchange.status = 0
        try:
            with self._check.put_address(request):
                exchange.sent = exchange.sent or is_call
                response = await super().handle_async_request(request)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, ToolError, NotDone) as exc:
            exchange.sent = exchange.sent and not is_call
            exchange.refused = exc
            raise
        if is_recorded:
            exchange.status = response.status_code
            exchange.retry_after = response.headers.get("Retry-After")
        response.stream = _Limited(response)
        return response


class _Limited(httpx2.AsyncByteStream):
    """The body of an answer, which ends with an error if it is compressed or too long."""

    def __init__(self, response: httpx2.Response) -> None:
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        self._stream = response.stream
        self._encoding = response.headers.get("Content-Encoding", "identity")

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._encoding != "identity":
            raise RuntimeError("the server compressed its answer, although it was not asked to")
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > MAX_ANSWER:
                raise RuntimeError(f"the answer has more than {MAX_ANSWER} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


def _build_definition(tool: types.Tool) -> Definition:
    return Definition(name=tool.name, description=tool.description or "", schema=tool.input_schema)


def _read(result: types.CallToolResult) -> Any:
    """Return the result as JSON. Raise ToolError if the tool says that it failed."""
    text = "\n".join(_format_block(block) for block in result.content)
    if result.is_error:
        raise ToolError(text[:QUOTED] or "the tool failed and gave no reason")
    if result.structured_content is None:
        return escape_text(text)
    try:
        return read_json(json.dumps(result.structured_content), "result")
    except (ValueError, RecursionError, NotJson):
        return result.structured_content  # refused as a result that cannot be kept


def _format_block(block: types.ContentBlock) -> str:
    """Return the text of a part of a result. Pictures and sound are named, not kept."""
    match block:
        case types.TextContent():
            return str(block.text)
        case types.EmbeddedResource(resource=types.TextResourceContents() as resource):
            return str(resource.text)
        case types.ResourceLink():
            return str(block.uri)
        case _:
            return f"({block.type}, which is not kept)"


def _derive_error(exchange: Exchange, problem: BaseException) -> Exception:
    """Return the exception that says what a failure means for the call."""
    while isinstance(problem, BaseExceptionGroup):
        problem = problem.exceptions[0]
    # After a deadline only the end of the session is refused.
    is_late = isinstance(problem, TimeoutError)
    if exchange.refused is not None and not exchange.sent and not is_late:
        problem = exchange.refused
    if isinstance(problem, DefinitionChanged | NotDone | ToolError):
        return problem
    if is_late:
        problem = TimeoutError("no answer in time")
    text = f"{exchange.server.label}: {str(problem)[:QUOTED] or type(problem).__name__}"
    if exchange.status >= 400:
        text += f" (status {exchange.status})"
    if exchange.status == 401:
        return CredentialRefused(text)
    if exchange.status in http_client.NOT_NOW:
        cause = FailureCause.LIMIT if exchange.status == 429 else FailureCause.PROVIDER
        return NotDone(text, after=retry_after_seconds(exchange.retry_after), cause=cause)
    if not exchange.sent:
        match problem:
            case TimeoutError():
                cause = FailureCause.TIME
            case httpx2.TransportError():
                cause = FailureCause.NETWORK
            case OSError():
                cause = FailureCause.SETUP
            case _:
                cause = FailureCause.PROVIDER
        return NotDone(text, cause=cause)
    if isinstance(problem, MCPError):
        if problem.code in _REFUSALS:
            return ToolError(text)
        if exchange.status == 404:  # the session ended after the tools were listed in it
            return NotDone(text, cause=FailureCause.PROVIDER)
    if 400 <= exchange.status < 500:
        return ToolError(text)
    if isinstance(problem, TimeoutError):
        return TimeoutError(text)
    return (
        ConnectionError(text) if isinstance(problem, httpx2.TransportError) else RuntimeError(text)
    )

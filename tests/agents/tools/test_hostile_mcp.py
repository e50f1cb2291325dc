"""MCP servers that hang, flood, lie or end their session: what a call then means, and that nothing else waits."""

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from agents.sdk.spec import ToolSpec
from agents.tools import mcp_client
from agents.tools.mcp import mcp_tools
from agents.tools.mcp_client import MAX_ANSWER
from agents.tools.mcp_definitions import Definition, write_definitions
from runtime.core.values.enums import FailureCause
from runtime.ports.effects import Outcome, ToolFailure, ToolResult, Unknown
from tests.support.loopback import respond, serving
from tests.support.specs import handler_of, spec_of, tool_request

SCHEMA = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}
MAKE = {"name": "make", "description": "Make", "inputSchema": SCHEMA}
START = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "hostile", "version": "1"},
}
MADE = {"content": [{"type": "text", "text": "made"}]}

# A command that cannot be ended but by SIGKILL.
STUBBORN = f"""
import json, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
results = {{"initialize": {START}, "tools/list": {{"tools": [{MAKE}]}}, "tools/call": {MADE}}}
for message in map(json.loads, sys.stdin):
    answer = {{"error": {{"code": -32601, "message": "no"}}}}
    if message["method"] in results:
        answer = {{"result": results[message["method"]]}}
    if "id" in message:
        print(json.dumps({{"jsonrpc": "2.0", "id": message["id"], **answer}}), flush=True)
time.sleep(60)
"""

Answer = Callable[[BaseHTTPRequestHandler, Any], None]


class Hostile:
    """A server with sessions. `answers` has its answers to methods of the protocol or of HTTP; others are good."""

    def __init__(self) -> None:
        self.url = ""
        self.answers: dict[str, Answer] = {}
        self.calls = 0
        self.over = threading.Event()

    def hang(self, handler: BaseHTTPRequestHandler, message: Any) -> None:
        self.over.wait(60)

    def take(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        message = json.loads(body or b"{}")
        method = message.get("method", handler.command)
        self.calls += method == "tools/call"
        results = {"initialize": START, "tools/list": {"tools": [MAKE]}, "tools/call": MADE}
        with suppress(OSError):
            if method in self.answers:
                self.answers[method](handler, message)
            elif method in results:
                result(handler, message, results[method])
            else:
                respond(handler, 404 if method == "server/discover" else 202)


def result(
    handler: BaseHTTPRequestHandler, message: Any, value: Any, *, stream: bool = False
) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": value}).encode()
    if stream:
        body, kind = b"data: " + body + b"\n\n", "text/event-stream"
    else:
        kind = "application/json"
    respond(handler, 200, body, Content_Type=kind, Mcp_Session_Id="s1")


@pytest.fixture
def server() -> Iterator[Hostile]:
    server = Hostile()
    with serving(server.take) as url:
        server.url = f"{url}/mcp"
        yield server
        server.over.set()


@pytest.fixture
def specs(server: Hostile, tmp_path: Path) -> tuple[ToolSpec, ...]:
    return tools_of(server.url, tmp_path, private=True)


def tools_of(server: str | list[str], folder: Path, **settings: Any) -> tuple[ToolSpec, ...]:
    accepted = folder / "accepted.json"
    write_definitions(accepted, [Definition(name="make", description="Make", schema=SCHEMA)])
    make = {"effect": "write", "approval": True, "risk": "medium"}
    return mcp_tools(server, accepted, tools={"make": make}, **settings)


def call(specs: tuple[ToolSpec, ...], deadline: float = 20.0) -> Outcome:
    handler = handler_of(spec_of(tools=specs))
    return handler.perform(tool_request("a", "make", {"title": "Tea"}, deadline=deadline))


@pytest.mark.parametrize("method", ["server/discover", "initialize", "tools/list"])
def test_a_server_that_hangs_before_the_call_did_nothing(
    server: Hostile, specs: tuple[ToolSpec, ...], method: str
) -> None:
    server.answers[method] = server.hang
    outcome = call(specs, deadline=1.0)
    assert isinstance(outcome, ToolFailure)
    assert (outcome.retryable, outcome.cause) == (True, FailureCause.TIME)
    assert outcome.error.endswith("/mcp: no answer in time")
    assert server.calls == 0


def test_a_server_that_hangs_in_the_call_leaves_it_in_doubt(
    server: Hostile, specs: tuple[ToolSpec, ...]
) -> None:
    server.answers["tools/call"] = server.hang
    outcome = call(specs, deadline=1.0)
    assert isinstance(outcome, Unknown)
    assert outcome.error.endswith("/mcp: no answer in time")
    assert outcome.cause is FailureCause.TIME


def test_a_server_that_does_not_end_its_session_cannot_withhold_the_result(
    server: Hostile, specs: tuple[ToolSpec, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_client, "CLOSING_SECONDS", 0.2)
    server.answers["DELETE"] = server.hang
    began = time.monotonic()
    assert call(specs) == ToolResult(value="made")
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("value", [float("nan"), 2**70, "\0"])
def test_a_definition_that_no_file_can_keep_is_not_accepted(
    server: Hostile, tmp_path: Path, value: Any
) -> None:
    tool = MAKE | {"inputSchema": SCHEMA | {"x": value}}
    server.answers["tools/list"] = lambda handler, message: result(
        handler, message, {"tools": [tool]}
    )
    path = tmp_path / "accepted.json"
    with pytest.raises(CommandError, match=r"/mcp: make\.inputSchema"):
        call_command("mcp_tools", "--accept", "--private", str(path), server.url)
    assert not path.exists()


@pytest.mark.slow
def test_a_command_that_does_not_end_cannot_withhold_the_result(tmp_path: Path) -> None:
    began = time.monotonic()
    assert call(tools_of([sys.executable, "-c", STUBBORN], tmp_path)) == ToolResult(value="made")
    assert time.monotonic() - began < 20


def test_a_result_is_not_checked_by_the_schema_of_its_server(
    server: Hostile, specs: tuple[ToolSpec, ...]
) -> None:
    endless = {"type": "string", "pattern": "^(a+)+$"}  # no thread of the worker would go on
    tool = MAKE | {"outputSchema": {"type": "object", "properties": {"a": endless}}}
    value = {"a": "a" * 28 + "!"}
    server.answers["tools/list"] = lambda handler, message: result(
        handler, message, {"tools": [tool]}
    )
    server.answers["tools/call"] = lambda handler, message: result(
        handler, message, {"content": [], "structuredContent": value}
    )
    began = time.monotonic()
    assert call(specs) == ToolResult(value=value)
    assert time.monotonic() - began < 10


def test_a_long_result_may_come_as_an_event(server: Hostile, specs: tuple[ToolSpec, ...]) -> None:
    text = "x" * (MAX_ANSWER // 2)
    content = {"content": [{"type": "text", "text": text}]}
    server.answers["tools/call"] = lambda handler, message: result(
        handler, message, content, stream=True
    )
    assert call(specs) == ToolResult(value=text)


def test_a_call_in_a_session_that_ended_did_nothing(
    server: Hostile, specs: tuple[ToolSpec, ...]
) -> None:
    server.answers["tools/call"] = lambda handler, _: respond(handler, 404)
    outcome = call(specs)
    assert isinstance(outcome, ToolFailure)
    assert outcome.retryable
    assert outcome.error.endswith("Session terminated (status 404)")


def test_a_refusal_without_credentials_is_told(
    server: Hostile, specs: tuple[ToolSpec, ...]
) -> None:
    server.answers["tools/list"] = lambda handler, _: respond(handler, 401)
    assert call(specs) == ToolFailure(error="make was refused, and it has no credentials")

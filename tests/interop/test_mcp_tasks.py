"""Tasks of an MCP gateway with a client of the package mcp 1.x. Each act is a process with a connection of its own."""

import json
import subprocess
from concurrent.futures import Future
from typing import Any
from uuid import UUID

import pytest

from approvals.people import tokens
from approvals.rights.principals import Scope
from tests.interop.environments import python_of
from tests.interop.frameworks import PROGRAMS
from tests.support.gateway_desk import TEA, Desk
from tests.support.mcp_server import Tickets
from tests.support.people import until
from tests.support.seeds import Cast
from tests.web.conftest import web, web_server
from tests.web.mcp_gateway.conftest import SECONDS, Assistants, assistants, desk, upstream

__all__ = ["assistants", "desk", "upstream", "web", "web_server"]

LOCK = "interop-crewai"  # it has mcp 1.x; 2.x has no client of tasks


class TaskClient:
    """Acts of one token."""

    def __init__(self, assistants: Assistants, person: Any) -> None:
        self.assistants = assistants
        _, self.token = tokens.create(person, [Scope.RUNS_START])

    def begin(self, act: str, argument: str = "") -> "Future[Any]":
        program = str(PROGRAMS / "mcp_task_client.py")
        words = [str(python_of(LOCK)), program, self.assistants.url, self.token, act, argument]

        def run() -> Any:
            process = subprocess.run(words, stdout=subprocess.PIPE, timeout=SECONDS, check=True)
            return json.loads(process.stdout)

        return self.assistants.pool.submit(run)

    def do(self, act: str, argument: str = "") -> Any:
        return self.begin(act, argument).result(SECONDS)


@pytest.fixture
def client(assistants: Assistants, cast: Cast) -> TaskClient:
    return TaskClient(assistants, cast.ada)


def test_a_client_of_tasks_calls_leaves_and_comes_back_for_the_result(
    client: TaskClient, desk: Desk, upstream: Tickets
) -> None:
    capabilities, *executions = client.do("list_tools")
    assert capabilities["tasks"]["requests"] == {"tools": {"call": {}}}
    assert executions == [{"taskSupport": "optional"}] * 2 + [None]
    (task,) = client.do("call", json.dumps(TEA))
    assert (task["taskId"], task["status"]) == (str(desk.run()), "working")
    approval = desk.ask_people()
    polling, waiting = client.begin("poll", task["taskId"]), client.begin("result", task["taskId"])
    from config import asgi

    until(lambda: asgi.live_server.count_waiting() or None, "the client to wait")
    assert upstream.calls == []
    desk.decide(approval)
    (result,) = waiting.result(SECONDS)
    assert (result["content"][0]["text"], result["isError"]) == ("made Tea", False)
    assert polling.result(SECONDS)[-1]["status"] == "completed"
    assert len(upstream.calls) == 1


def test_a_client_of_tasks_cancels_and_nothing_is_called(
    client: TaskClient, desk: Desk, upstream: Tickets
) -> None:
    (task,) = client.do("call", json.dumps(TEA))
    desk.ask_people()
    (cancelled,) = client.do("cancel", task["taskId"])
    assert (cancelled["taskId"], cancelled["status"]) == (task["taskId"], "cancelled")
    assert desk.advance(UUID(task["taskId"])) == "cancelled"
    assert client.do("poll", task["taskId"])[-1]["status"] == "cancelled"
    assert upstream.calls == []

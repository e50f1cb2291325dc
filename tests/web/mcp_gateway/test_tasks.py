"""Tasks of the protocol's version 2025-11-25, message by message over HTTP. tests/interop has a real client of them."""

from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import httpx2
import pytest
from django.conf import settings
from django.test import override_settings
from mcp_types import CreateTaskResult, GetTaskResult

from approvals.models import AuditEntry
from approvals.people import tokens
from approvals.rights.principals import Scope
from config import mcp_gateway
from runtime.control.verification import verify
from runtime.core.values.verdicts import DENIED
from runtime.models import Run
from runtime.upkeep import retention, retention_rules
from tests.support.gateway_desk import TEA, Desk
from tests.support.mcp_server import Tickets
from tests.support.people import until
from tests.support.seeds import Cast
from tests.web.mcp_gateway.conftest import SECONDS, Assistants

CALL: dict[str, Any] = {"name": "Create-Ticket", "arguments": TEA, "task": {"ttl": 60_000}}


class Tasks:
    """A client with one token and no connection, that asks by message."""

    def __init__(self, assistants: Assistants, person: Any) -> None:
        _, secret = tokens.create(person, [Scope.RUNS_START])
        self.url, self.headers = assistants.url, {"Authorization": f"Bearer {secret}"}

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        with httpx2.Client(headers=self.headers, trust_env=False, timeout=SECONDS) as client:
            answer: dict[str, Any] = client.post(self.url, json=message).json()
        return answer

    def ask(self, **params: Any) -> str:
        """Make a task, and return its id."""
        created = CreateTaskResult.model_validate(
            self.send("tools/call", **CALL | params)["result"]
        )
        assert created.task.status == "working"
        return str(created.task.task_id)

    def get(self, task: str) -> GetTaskResult:
        return GetTaskResult.model_validate(self.send("tasks/get", taskId=task)["result"])

    def result(self, task: str) -> dict[str, Any]:
        result: dict[str, Any] = self.send("tasks/result", taskId=task)["result"]
        assert result["_meta"] == {"io.modelcontextprotocol/related-task": {"taskId": task}}
        return result

    def refused(self, method: str, task: object) -> int:
        code: int = self.send(method, taskId=task)["error"]["code"]
        return code


@pytest.fixture
def ada(assistants: Assistants, cast: Cast) -> Tasks:
    return Tasks(assistants, cast.ada)


def test_only_clients_of_the_version_that_has_tasks_are_told_of_them(ada: Tasks) -> None:
    for version, has_tasks in (("2025-11-25", True), ("2025-06-18", False), ("2026-07-28", True)):
        answer = ada.send("initialize", protocolVersion=version)["result"]
        assert ("tasks" in answer["capabilities"]) is has_tasks
    assert answer["protocolVersion"] == "2025-11-25"
    assert answer["capabilities"]["tasks"]["requests"] == {"tools": {"call": {}}}
    tools = {tool["name"]: tool for tool in ada.send("tools/list")["result"]["tools"]}
    assert tools["search"]["execution"] == {"taskSupport": "optional"}
    assert "execution" not in tools["approval_result"]
    assert ada.send("tools/call", **CALL | {"name": "approval_result"})["error"]["code"] == -32601
    for wrong in (False, True, [0], "no"):
        assert ada.send("tools/call", **CALL | {"task": wrong})["error"]["code"] == -32602


def test_a_task_is_the_run_of_the_call_and_a_later_connection_gets_its_result(
    ada: Tasks, assistants: Assistants, desk: Desk, upstream: Tickets, cast: Cast
) -> None:
    task = ada.ask()
    assert ada.ask() == task == str(desk.run())  # the answer of the first may have been lost
    approval = desk.ask_people()
    waiting = ada.get(task)
    assert (waiting.status, waiting.ttl) == ("working", None)
    assert f"a person's decision, at {settings.PUBLIC_URL}/runs/{task}/" in waiting.status_message
    assert desk.decide(approval) == "completed"
    ended = ada.get(task)
    assert (ended.status, ended.created_at) == ("completed", waiting.created_at)
    assert datetime.fromisoformat(ended.last_updated_at) == Run.objects.get().ended_at
    assert not AuditEntry.objects.filter(act="collected").exists()
    result = ada.result(task)
    assert (result["content"][0]["text"], result["isError"]) == ("made Tea", False)
    assert ada.result(task) == result
    handle = ada.send("tools/call", name="approval_result", arguments={"handle": task})
    assert handle["result"]["content"] == result["content"]
    assert ada.refused("tasks/cancel", task) == -32602
    assert len(upstream.calls) == 1
    assert ada.ask() != task  # its result was collected
    assert verify(UUID(task)).is_consistent


def test_a_result_is_waited_for_as_long_as_for_a_call_and_then_asked_for_again(
    ada: Tasks, assistants: Assistants, desk: Desk
) -> None:
    task = ada.ask()
    approval = desk.ask_people()
    with override_settings(SIGNOFF_GATEWAY_SECONDS=1):
        assert ada.refused("tasks/result", task) == mcp_gateway.NOT_ENDED
    waiting = assistants.pool.submit(ada.result, task)
    from config import asgi

    until(lambda: asgi.live_server.count_waiting() or None, "the client to wait")
    desk.decide(approval)
    assert waiting.result(SECONDS)["content"][0]["text"] == "made Tea"


def test_a_denied_task_has_failed_and_its_result_says_why(
    ada: Tasks, desk: Desk, upstream: Tickets
) -> None:
    task = ada.ask()
    desk.decide(desk.ask_people(), "deny", "Coffee, please.")
    assert ada.get(task).status == "failed"
    result = ada.result(task)
    assert (result["content"][0]["text"], result["isError"]) == (f"{DENIED}Coffee, please.", True)
    assert upstream.calls == []


def test_a_cancelled_task_never_makes_its_call(ada: Tasks, desk: Desk, upstream: Tickets) -> None:
    """The token has no scope to cancel runs, and withdraws its own call."""
    task = ada.ask()
    approval = desk.ask_people()
    cancelled = GetTaskResult.model_validate(ada.send("tasks/cancel", taskId=task)["result"])
    assert (cancelled.status, ada.get(task).status) == ("cancelled", "cancelled")
    assert ada.refused("tasks/cancel", task) == -32602
    approval.refresh_from_db()
    assert (approval.status, approval.reason) == (
        "cancelled",
        "The MCP client that asked has cancelled its call.",
    )
    assert desk.advance(UUID(task)) == "cancelled"
    assert ada.get(task).status == "cancelled"
    assert ada.ask() != task  # the same call is a new one, before the result is read too
    result = ada.result(task)
    assert result["isError"]
    assert "may have been" not in result["content"][0]["text"]
    assert upstream.calls == []
    assert verify(UUID(task)).is_consistent


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_call_that_was_made_before_its_task_was_cancelled_says_so(
    ada: Tasks, desk: Desk, upstream: Tickets, is_lost: bool
) -> None:
    """Cancelled while its server answers, or while people are asked whether it was made."""
    task = ada.ask()

    class Calls(list[Any]):
        def append(self, call: Any) -> None:
            super().append(call)
            if not is_lost:
                ada.send("tasks/cancel", taskId=task)

    upstream.calls, upstream.broken = Calls(), is_lost
    assert desk.decide(desk.ask_people()) == ("suspended" if is_lost else "cancelled")
    if is_lost:
        ada.send("tasks/cancel", taskId=task)
        assert desk.advance(UUID(task)) == "cancelled"
    result = ada.result(task)
    assert result["isError"]
    words = f"It was made before, or may have been: see {settings.PUBLIC_URL}/runs/{task}/."
    assert result["content"][0]["text"].endswith(words)
    assert (ada.get(task).status, len(upstream.calls)) == ("cancelled", 1)


def test_another_token_finds_no_task(ada: Tasks, assistants: Assistants, cast: Cast) -> None:
    task, other = ada.ask(), Tasks(assistants, cast.ada)
    for client, wrong in ((other, task), (ada, str(uuid4())), (ada, "x"), (ada, None)):
        for method in ("tasks/get", "tasks/result", "tasks/cancel"):
            assert client.refused(method, wrong) == -32602
    handle = other.send("tools/call", name="approval_result", arguments={"handle": task})
    assert handle["error"]["code"] == -32602
    assert ada.get(task).status == "working"
    assert not AuditEntry.objects.filter(run=UUID(task)).exists()


@override_settings(
    SIGNOFF_RETENTION=retention_rules.parse("90, tickets/failed=30, other=1"),
    SIGNOFF_ARCHIVE=retention_rules.parse("tickets/completed=never"),
)
def test_a_task_names_the_least_time_for_which_its_result_stays(ada: Tasks, desk: Desk) -> None:
    task = ada.ask()
    assert ada.get(task).ttl == 30 * 24 * 60 * 60 * 1000
    desk.decide(desk.ask_people())
    assert retention.erase(UUID(task))
    assert ada.refused("tasks/get", task) == -32602

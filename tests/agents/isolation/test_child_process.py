"""Isolated tools: they run in processes of their own, which the deadline kills with all that they started."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import pytest

from agents.effect_handler import AgentEffects
from agents.errors import DefinitionError
from agents.isolation.processes import Child, Children
from agents.registry import load
from agents.sdk import tool
from agents.sdk.spec import ToolSpec
from runtime.core.enums import FailureCause
from runtime.ports.effects import Outcome, ToolFailure, ToolRequest, ToolResult, Unknown
from tests.agents.isolation import isolated
from tests.support.people import until
from tests.support.specs import tool_request


@pytest.fixture(scope="module")
def children() -> Iterator[Children]:
    one = Children([isolated.__name__])
    yield one
    one.close()


def call(children: Children, tool: ToolSpec, deadline: float = 60.0, **args: Any) -> Outcome:
    return children.perform(tool, args, request_of(tool, deadline, **args))


def request_of(tool: ToolSpec, deadline: float, **args: Any) -> ToolRequest:
    more = {"run": uuid4(), "key": "the key", "deadline": deadline, "effect": tool.effect}
    return tool_request("isolating", tool.name, args, **more)


def test_an_isolated_tool_runs_in_another_process(children: Children) -> None:
    first = call(children, isolated.whoami, name="ada")
    again = call(children, isolated.whoami, name="bea")
    assert isinstance(first, ToolResult)
    assert isinstance(again, ToolResult)
    assert (first.value["name"], first.value["key"]) == ("ada", "the key")
    assert 0 < first.value["left"] <= 60.0
    assert first.value["process"] != os.getpid()
    assert again.value == {**again.value, "name": "bea", "process": first.value["process"]}


def test_the_deadline_kills_a_tool_and_its_child_processes(
    children: Children, tmp_path: Path
) -> None:
    call(children, isolated.whoami, name="ada")  # a process is ready
    outcome = call(children, isolated.spin, deadline=5.0, folder=str(tmp_path))
    error = "spin did not end by its deadline, and its process was killed"
    assert outcome == Unknown(error=error, cause=FailureCause.TIME)
    pids = [int(pid) for pid in Path(tmp_path, "pids").read_text().split()]
    until(lambda: not any(_runs(pid) for pid in pids) or None, "both to be gone")


def test_a_tool_that_ends_its_process_is_in_doubt(children: Children) -> None:
    error = "the process of crash ended (SIGABRT) before it said what became of it"
    assert call(children, isolated.crash) == Unknown(error=error, cause=FailureCause.TOOL)


def test_an_isolated_tools_error_has_the_same_outcome(children: Children) -> None:
    assert call(children, isolated.refuse) == ToolFailure(error="not today")
    undone = call(children, isolated.undone)
    assert undone == ToolFailure(error="later", retryable=True, retry_after=3.0, cause=undone.cause)  # type: ignore[union-attr]
    assert call(children, isolated.fail) == Unknown(error="ValueError: a surprise")


def test_a_process_that_does_not_start_did_nothing(caplog: pytest.LogCaptureFixture) -> None:
    outcome = call(Children(["tests.agents.no_such_module"]), isolated.crash)
    error = "the process for crash did not start: look at the worker's log"
    assert outcome == ToolFailure(error=error, retryable=True, cause=FailureCause.WORKER)
    assert f"Call the key waits: {error}" in caplog.text


def test_a_process_ends_when_its_worker_is_gone() -> None:
    child = Child([])
    assert child._process.stdin is not None
    child._process.stdin.close()
    assert child._process.wait(60) == -9


def test_a_transactional_tool_cannot_be_isolated() -> None:
    def write(number: int) -> str:
        """Write."""
        return ""

    with pytest.raises(DefinitionError, match="its transaction is the worker's"):
        tool(effect="transactional", isolate=True)(write)


def test_an_isolated_tool_is_a_function_of_its_module() -> None:
    def inner(number: int) -> str:
        """Do."""
        return ""

    with pytest.raises(DefinitionError, match="must be a function of its module"):
        tool(isolate=True)(inner)


def test_a_worker_isolates_a_tool_and_a_kit_runs_it_itself(children: Children) -> None:
    registry = load([isolated.__name__])
    request = request_of(isolated.whoami, 60.0, name="ada")
    there = AgentEffects(registry, close_connections=_nothing, children=children).perform(request)
    here = AgentEffects(registry, close_connections=_nothing).perform(request)
    assert isinstance(there, ToolResult)
    assert isinstance(here, ToolResult)
    assert there.value["process"] != here.value["process"] == os.getpid()


def _nothing() -> None:
    """Leave the connections as they are."""


def _runs(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False

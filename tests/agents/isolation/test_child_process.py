"""Isolated tools: they run in processes of their own, which the deadline kills with all that they started."""

import logging
import os
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import pytest
from django.conf import settings
from django.utils.module_loading import import_string

from agents import masked_output
from agents.effect_handler import AgentEffects
from agents.isolation.processes import Child, Children
from agents.masked_output import REDACTED
from agents.registry import load
from agents.sdk.spec import ToolSpec
from runtime.core.values.enums import FailureCause
from runtime.ports.effects import Outcome, ToolFailure, ToolRequest, ToolResult, Unknown
from tests.agents.isolation import isolated
from tests.support.people import until
from tests.support.specs import tool_request

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def children() -> Iterator[Children]:
    one = Children([isolated.__name__])
    yield one
    one.close()


def call(children: Children, tool: ToolSpec, deadline: float = 60.0, **args: Any) -> Outcome:
    return children.perform(tool, args, request_of(tool, deadline, **args))


def request_of(tool: ToolSpec, deadline: float = 60.0, **args: Any) -> ToolRequest:
    more = {"run": uuid4(), "key": "the key", "deadline": deadline, "effect": tool.effect}
    return tool_request("isolating", tool.name, args, **more)


def test_a_worker_isolates_a_tool_and_a_kit_runs_it_itself(children: Children) -> None:
    registry, request = load([isolated.__name__]), request_of(isolated.whoami, name="ada")
    here = AgentEffects(registry, close_connections=lambda: None)
    there = replace(here, children=children)
    first, again, own = (handler.perform(request) for handler in (there, there, here))
    assert isinstance(first, ToolResult)
    assert isinstance(again, ToolResult)
    assert isinstance(own, ToolResult)
    assert (first.value["name"], first.value["key"]) == ("ada", "the key")
    assert 0 < first.value["left"] <= 60.0
    assert first.value["process"] == again.value["process"] != own.value["process"] == os.getpid()


def test_the_deadline_kills_a_tool_and_its_children(children: Children, tmp_path: Path) -> None:
    call(children, isolated.whoami, name="ada")  # a process is ready
    outcome = call(children, isolated.spin, deadline=2.0, folder=str(tmp_path))
    error = "spin did not end by its deadline, and its process was killed"
    assert outcome == Unknown(error=error, cause=FailureCause.TIME)
    pids = [int(pid) for pid in Path(tmp_path, "pids").read_text().split()]
    until(lambda: not any(_runs(pid) for pid in pids) or None, "both to be gone")


def test_an_isolated_tools_error_has_the_same_outcome(children: Children) -> None:
    refuse, undone, fail, crash = (
        call(children, isolated.end, how=how) for how in ("refuse", "undone", "fail", "crash")
    )
    assert refuse == ToolFailure(error="not today")
    assert undone == ToolFailure(error="later", retryable=True, retry_after=3.0, cause=undone.cause)  # type: ignore[union-attr]
    assert fail == Unknown(error="ValueError: a surprise")
    error = "the process of end ended (SIGABRT) before it reported an outcome"
    assert crash == Unknown(error=error, cause=FailureCause.TOOL)


def test_a_process_that_does_not_start_did_nothing(caplog: pytest.LogCaptureFixture) -> None:
    outcome = call(Children(["tests.agents.no_such_module"]), isolated.end, how="crash")
    error = "the process for end did not start: look at the worker's log"
    assert outcome == ToolFailure(error=error, retryable=True, cause=FailureCause.WORKER)
    assert f"Call the key waits: {error}" in caplog.text


def test_a_process_ends_when_its_worker_is_gone() -> None:
    child = Child([])
    assert child._process.stdin is not None
    child._process.stdin.close()
    assert child._process.wait(60) == -9


def _runs(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_what_a_tool_writes_has_no_credential(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CRM_SECRET", "canary'\"/é token")
    children = Children([isolated.__name__])
    try:
        assert call(children, isolated.tell) == ToolResult(value="told")
    finally:
        children.close()
    out, err = capfd.readouterr()
    assert out == f'printed {REDACTED} "{REDACTED}"\nwritten {REDACTED}\n'
    assert err.count("printed") == 1
    assert f"WARNING crm: Bearer {REDACTED} and" in err
    assert f"ValueError: https://crm.example/?token={REDACTED}" in err
    assert "canary" not in out + err


def test_a_worker_masks_in_its_log_what_a_tool_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Celery logs the prints of a worker."""
    monkeypatch.setenv("CRM_SECRET", "canary of the worker")
    lines = StringIO()
    formatters: Any = settings.LOGGING["formatters"]
    handler = logging.StreamHandler(lines)
    handler.setFormatter(import_string(formatters["line"]["class"])())
    logging.getLogger("crm").addHandler(handler)
    handle = AgentEffects(load([isolated.__name__]), close_connections=lambda: None)
    try:
        assert handle.perform(request_of(isolated.tell)) == ToolResult(value="told")
    finally:
        logging.getLogger("crm").removeHandler(handler)
    assert lines.getvalue().count(REDACTED) >= 5
    assert "canary" not in lines.getvalue()


def test_the_latest_credentials_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masked_output, "MAX_FORMS", 2)
    for secret in ("first", "second", "second of two", "it"):
        masked_output.remember([secret])
    assert masked_output.mask("it first second of two second") == f"it first {REDACTED} {REDACTED}"

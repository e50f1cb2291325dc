"""A real worker whose tools hang: it says so, ends, is replaced, and no other run waits for it."""

from pathlib import Path

import pytest

from runtime.execution.effects.pool import TOOL_SLOTS
from tests.support.people import Office
from tests.support.scripted_agents import hanging
from tests.support.stack import Stack

pytestmark = pytest.mark.e2e


def test_a_worker_whose_tools_hang_is_replaced(sandbox: Path) -> None:
    with Stack(sandbox / "hanging", ABEYANCE_AGENTS=hanging.__name__) as stack:
        office = Office(stack)
        hung = office.begin("hangs", number=TOOL_SLOTS)
        others = [office.begin("answers", number=number) for number in range(8)]
        stack.wait_for_line("worker ended (exit code 1)")
        log = (stack.home / "logs" / "worker.log").read_text()
        assert "CRITICAL" in log
        assert "tool slots are held by calls past their deadline (tools: hang)" in log
        for run in others:
            office.wait(run, "completed")
        found = office.wait(hung, "suspended")
        assert {gate["kind"] for gate in found["gates"]} == {"in_doubt"}
        assert len(found["gates"]) == TOOL_SLOTS

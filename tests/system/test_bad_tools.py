"""Real workers whose tools kill them or hang: they are replaced, and no other run waits for them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.execution.effects.pool import TOOL_SLOTS
from tests.support.people import Office, until
from tests.support.scripted_agents import holding
from tests.support.stack import Stack

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def office(sandbox: Path) -> Iterator[Office]:
    with Stack(
        sandbox / "bad-tools",
        ABEYANCE_LEASE_SECONDS="2",
        ABEYANCE_POISON_LOSSES="2",
        ABEYANCE_AGENTS=holding.__name__,
    ) as stack:
        yield Office(stack)


def test_a_worker_whose_tools_hang_is_replaced(office: Office) -> None:
    hung = office.begin("hangs", number=TOOL_SLOTS)
    others = [office.begin("ticks", name=str(number)) for number in range(8)]
    office.stack.wait_for_line("worker ended (exit code 1)")
    log = (office.stack.home / "logs" / "worker.log").read_text()
    assert "CRITICAL" in log
    assert "tool slots are held by calls past their deadline (tools: hang)" in log
    for run in others:
        office.wait(run, "completed")
    found = office.wait(hung, "suspended")
    assert [gate["kind"] for gate in found["gates"]] == ["in_doubt"] * TOOL_SLOTS


def test_a_crashing_run_beside_50_others_is_quarantined_alone(office: Office) -> None:
    others = [office.begin("ticks", name=str(number)) for number in range(25)]
    deadly = office.begin("ends_it_all", name="all")
    others += [office.begin("ticks", name=str(number)) for number in range(25)]

    def is_over() -> bool | None:
        return office.run(deadly)["status"] == "quarantined" or None

    until(is_over, "the deadly run to be quarantined", 180.0)  # three workers die
    assert "2 workers in a row died" in office.run(deadly)["reason"]
    for run in others:
        office.wait(run, "completed")
    assert any(line.startswith("isolated ended (SIGABRT)") for line in office.stack.said)

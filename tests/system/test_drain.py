"""A real worker that is told to stop while a tool holds: once, twice, and past its time."""

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support import processes
from tests.support.people import Office, until
from tests.support.scripted_agents import holding
from tests.support.stack import Stack, shared_folder

pytestmark = pytest.mark.e2e

DRAIN = 8.0
ENDED = "worker ended (exit code 0)"


class Ward:
    """A stack whose launcher starts another worker whenever one has ended."""

    def __init__(self, stack: Stack, folder: Path) -> None:
        self.office = Office(stack)
        self.stack = stack
        self.folder = folder

    def start(self, agent: str, name: str, tool: str) -> tuple[str, psutil.Process]:
        """A run whose tool holds, and the worker that it holds in."""
        run = self.office.begin(agent, name=name)
        until(lambda: self.begun(name, tool) or None, f"{tool} to begin")
        return run, processes.of(self.stack, "worker").process

    def begun(self, name: str, tool: str) -> int:
        """Count the starts of a tool in all processes."""
        ledger = self.folder / "ledger"
        lines = ledger.read_text().splitlines() if ledger.exists() else []
        return sum(line.split()[:3] == [name, tool, "begin"] for line in lines)

    def release(self, name: str) -> None:
        (self.folder / f"{name}.go").touch()

    def types(self, run: str) -> list[str]:
        return [event["type"] for event in self.office.events(run)]


@pytest.fixture(scope="module")
def ward(sandbox: Path) -> Iterator[Ward]:
    folder = shared_folder(sandbox, "drained")
    stack = Stack(
        sandbox / "drain",
        ABEYANCE_LEASE_SECONDS="2",
        ABEYANCE_DRAIN_SECONDS=str(DRAIN),
        ABEYANCE_AGENTS=f"agents.flows.hr,{holding.__name__}",
        HOLDING_FOLDER=str(folder),
    )
    with stack:
        yield Ward(stack, folder)


def test_a_stopping_worker_journals_its_call_and_ends(ward: Ward) -> None:
    run, worker = ward.start("patient_once", "drained", "hold_once")
    worker.terminate()
    worker.terminate()
    ward.release("drained")
    worker.wait(60)
    ward.stack.wait_for_line(ENDED)
    ward.office.wait(run, "completed")
    assert ward.begun("drained", "hold_once") == ward.begun("drained", "note") == 1
    assert "OutcomeUnknown" not in ward.types(run)


def test_the_effect_class_decides_about_an_unfinished_call(ward: Ward) -> None:
    once, worker = ward.start("patient_once", "asked", "hold_once")
    again, _ = ward.start("patient_again", "repeated", "hold_again")
    worker.terminate()
    worker.wait(60)
    ward.stack.wait_for_line(ENDED)
    found = ward.office.wait(once, "suspended")
    assert [gate["kind"] for gate in found["gates"]] == ["in_doubt"]
    until(lambda: ward.begun("repeated", "hold_again") == 2 or None, "another worker to repeat it")
    ward.release("repeated")
    ward.office.wait(again, "completed")
    assert ward.begun("asked", "hold_once") == 1
    assert ward.types(again).count("ToolStarted") == 3  # hold_again twice, note

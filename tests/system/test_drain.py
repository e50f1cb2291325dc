"""A real worker that gets SIGTERM twice while a tool holds."""

from pathlib import Path

import pytest

from tests.support import processes
from tests.support.people import Office, until
from tests.support.scripted_agents import holding
from tests.support.stack import Stack, shared_folder

pytestmark = pytest.mark.e2e


def test_a_stopping_worker_journals_its_call_and_ends(sandbox: Path) -> None:
    folder = shared_folder(sandbox, "drained")
    with Stack(
        sandbox / "drain",
        ABEYANCE_LEASE_SECONDS="2",
        ABEYANCE_DRAIN_SECONDS="8",
        ABEYANCE_AGENTS=f"agents.flows.hr,{holding.__name__}",
        HOLDING_FOLDER=str(folder),
    ) as stack:
        office = Office(stack)
        run = office.begin("patient_once", name="drained")
        ledger = folder / "ledger"
        until(lambda: ledger.exists() or None, "the tool to begin")
        worker = processes.of(stack, "worker").process
        worker.terminate()
        worker.terminate()
        (folder / "drained.go").touch()
        worker.wait(60)
        stack.wait_for_line("worker ended (exit code 0)")
        office.wait(run, "completed")
        begun = [line.split()[1] for line in ledger.read_text().splitlines() if " begin " in line]
        assert begun == ["hold_once", "note"]
        assert "OutcomeUnknown" not in [event["type"] for event in office.events(run)]

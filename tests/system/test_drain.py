"""A real worker that gets SIGTERM twice while a tool holds."""

from pathlib import Path

import pytest

from tests.support import processes
from tests.support.people import Office, until
from tests.support.scripted_agents import holding, ledger
from tests.support.stack import with_ledger

pytestmark = pytest.mark.e2e


def test_a_stopping_worker_journals_its_call_and_ends(sandbox: Path) -> None:
    stack, book = with_ledger(sandbox, "drain", holding.__name__, ABEYANCE_DRAIN_SECONDS="8")
    with stack:
        office = Office(stack)
        run = office.begin("patient_once", name="drained")
        until(lambda: book.exists() or None, "the tool to begin")
        worker = processes.of(stack, "worker").process
        worker.terminate()
        worker.terminate()
        ledger.mark(book, "drained.go")
        worker.wait(60)
        stack.wait_for_line("worker ended (exit code 0)")
        office.wait(run, "completed")
        keys = [effect.key for effect in ledger.read(book)]
        assert keys == ["drained/hold_once", "drained/hold_once/end", "drained/note"]
        assert "OutcomeUnknown" not in [event["type"] for event in office.events(run)]

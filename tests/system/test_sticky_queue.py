"""Several worker processes: a long run goes back to the one that had it, and to another one if that is gone."""

import os
import signal
from pathlib import Path

import pytest

from tests.bench.sides import agents
from tests.support.people import Office, until
from tests.support.stack import Stack

pytestmark = pytest.mark.e2e

WORKERS = 3
RUNS = 4
STEPS = 450  # so long that the run has a continuation
BEATING = "SELECT count(*) FROM runtime_worker WHERE NOT isolated"
HAD = """
    SELECT runtime_run.worker, process, base > 0
    FROM runtime_run JOIN runtime_worker ON runtime_worker.id = runtime_run.worker
    WHERE runtime_run.id = %s
"""


def test_a_long_run_is_resumed_by_the_process_that_had_it(sandbox: Path) -> None:
    stack = Stack(
        sandbox / "sticky", ABEYANCE_WORKERS=str(WORKERS), ABEYANCE_AGENTS=agents.__name__
    )
    with stack:
        office = Office(stack)
        until(lambda: stack.rows(BEATING) == [(WORKERS,)] or None, "the workers", 120)

        def suspended() -> str:
            run = office.begin("walk", steps=STEPS)
            office.wait(run, "suspended")
            return run

        def had(run: str) -> tuple[object, ...]:
            """The worker that had the run last, its process, and whether the run is long."""
            (found,) = stack.rows(HAD, run)
            assert found[2]
            return found

        def finish(run: str) -> None:
            assert office.decide("bea", office.approval(run), "approve")[0] == 200
            office.wait(run, "completed")

        runs = [suspended() for _ in range(RUNS)]
        before = [had(run) for run in runs]
        for run in runs:
            finish(run)
        assert [had(run) for run in runs] == before

        run = suspended()
        worker, process, _ = had(run)
        os.kill(int(str(process)), signal.SIGKILL)
        finish(run)
        assert had(run)[0] != worker

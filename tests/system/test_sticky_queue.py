"""Several worker processes: a long run goes back to the one that had it, and to another one if that is gone."""

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Walks:
    """Long runs on one stack."""

    office: Office
    connection: "psycopg.Connection[tuple[object, ...]]"

    def start(self) -> str:
        """Start a long run, and return it when it waits at its gate."""
        body = {"agent": "walk", "input": {"steps": STEPS}}
        status, run = self.office.stack.ask("ada", "POST", "/api/v1/runs", body)
        assert status == 201, run
        self.office.wait(str(run["id"]), "suspended")
        return str(run["id"])

    def approve(self, run: str) -> None:
        status, _ = self.office.decide("bea", self.office.approval(run), "approve")
        assert status == 200

    def had(self, run: str) -> tuple[object, ...]:
        """The worker that had the run last, and its process."""
        row = self.connection.execute(HAD, (run,)).fetchone()
        assert row is not None
        *found, is_long = row
        assert is_long
        return tuple(found)


@pytest.fixture(scope="module")
def walks(sandbox: Path) -> Iterator[Walks]:
    stack = Stack(
        sandbox / "sticky", ABEYANCE_WORKERS=str(WORKERS), ABEYANCE_AGENTS=agents.__name__
    )
    with stack, psycopg.connect(stack.superuser_url, autocommit=True) as connection:

        def ready() -> bool | None:
            return connection.execute(BEATING).fetchone() == (WORKERS,) or None

        until(ready, "every worker to be ready", 120)
        yield Walks(office=Office(stack), connection=connection)


def test_a_long_run_is_resumed_by_the_process_that_had_it(walks: Walks) -> None:
    runs = [walks.start() for _ in range(RUNS)]
    before = [walks.had(run) for run in runs]
    for run in runs:
        walks.approve(run)
        walks.office.wait(run, "completed")
    assert [walks.had(run) for run in runs] == before


def test_another_process_resumes_it_if_that_one_was_killed(walks: Walks) -> None:
    run = walks.start()
    worker, process = walks.had(run)
    os.kill(int(str(process)), signal.SIGKILL)
    walks.approve(run)
    walks.office.wait(run, "completed")
    assert walks.had(run)[0] != worker

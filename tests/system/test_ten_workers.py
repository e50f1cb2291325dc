"""Ten worker processes at once on one Postgres: each run ends once, none has more than ten connections, and a long run
goes back to the one that had it, and to another one if that is gone.
"""

import os
import re
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from config.processes import CONNECTIONS_OF_A_WORKER
from tests.bench.sides import agents
from tests.support.people import Office, until
from tests.support.scripted_agents import holding
from tests.support.scripted_agents.crowd import START
from tests.support.stack import with_ledger
from tests.system.holders import Holders

pytestmark = pytest.mark.e2e

WORKERS = 10
RUNS = 250
BEATING = """
    SELECT count(*) FROM runtime_workerprocess
    WHERE NOT isolated AND beat_at >= pg_postmaster_start_time()
"""
CONNECTIONS = """
    SELECT application_name, count(*) FROM pg_stat_activity
    WHERE application_name LIKE 'signoff worker %' GROUP BY 1
"""
COMPLETED = "SELECT count(*) FROM runtime_run WHERE status = 'completed'"


@pytest.fixture(scope="module")
def ten(sandbox: Path) -> Iterator[Holders]:
    chosen = f"{holding.__name__},{agents.__name__}"
    stack, book = with_ledger(sandbox, "ten", chosen, SIGNOFF_WORKERS=str(WORKERS))
    with stack:
        # The stack says that it is ready when one worker is: the first ones could take every run.
        until(lambda: stack.rows(BEATING) == [(WORKERS,)] or None, "the workers", 120)
        yield Holders(stack, book)


def test_ten_workers_end_each_run_once_on_ten_connections_each(ten: Holders) -> None:
    most: Counter[str] = Counter()
    ten.execute(START.format(agent="borrower", number=RUNS))

    def done() -> bool | None:
        for name, count in ten.stack.rows(CONNECTIONS):
            most[name] = max(most[name], count)
        return ten.stack.rows(COMPLETED) == [(RUNS,)] or None

    until(done, "every run to end", 120)
    lost = ten.stack.rows("SELECT count(*) FROM runtime_lostlease")
    effects = ten.effects(*map(str, range(RUNS)))
    assert sorted(one.key for one in effects) == sorted(f"{n}/ask_postgres" for n in range(RUNS))
    assert len({one.process for one in effects}) == WORKERS
    assert lost == [(0,)]
    assert len([name for name in most if re.fullmatch(r"signoff worker \d+", name)]) >= WORKERS
    assert max(most.values()) <= CONNECTIONS_OF_A_WORKER, most


LONG_RUNS = 2
STEPS = 450  # so long that the run has a continuation
HAD = """
    SELECT runtime_run.worker, process, base > 0
    FROM runtime_run JOIN runtime_workerprocess ON runtime_workerprocess.id = runtime_run.worker
    WHERE runtime_run.id = %s
"""


def test_a_long_run_is_resumed_by_the_process_that_had_it(ten: Holders) -> None:
    runs = [_suspended(ten) for _ in range(LONG_RUNS)]
    before = [_had(ten, run) for run in runs]
    for run in runs:
        _finish(ten, run)
    assert [_had(ten, run) for run in runs] == before

    run = _suspended(ten)
    worker, process, _ = _had(ten, run)
    os.kill(int(str(process)), signal.SIGKILL)
    _finish(ten, run)
    assert _had(ten, run)[0] != worker


def _suspended(office: Office) -> str:
    run = office.begin("walk", steps=STEPS)
    office.wait(run, "suspended")
    return run


def _had(office: Office, run: str) -> tuple[object, ...]:
    """The worker that had the run last, its process, and whether the run is long."""
    (found,) = office.stack.rows(HAD, run)
    assert found[2]
    return tuple(found)


def _finish(office: Office, run: str) -> None:
    assert office.decide("bea", office.approval(run), "approve")[0] == 200
    office.wait(run, "completed")

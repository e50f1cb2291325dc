"""Ten worker processes at once on one Postgres: each run ends once, and none has more than ten connections."""

import re
from collections import Counter
from pathlib import Path

import pytest

from config.processes import CONNECTIONS_OF_A_WORKER
from tests.support.people import Office, until
from tests.support.scripted_agents import holding, ledger
from tests.support.scripted_agents.crowd import START
from tests.support.stack import with_ledger

pytestmark = pytest.mark.e2e

WORKERS = 10
RUNS = 250
BEATING = """
    SELECT count(*) FROM runtime_worker
    WHERE NOT isolated AND beat_at >= pg_postmaster_start_time()
"""
CONNECTIONS = """
    SELECT application_name, count(*) FROM pg_stat_activity
    WHERE application_name LIKE 'abeyance worker %' GROUP BY 1
"""
COMPLETED = "SELECT count(*) FROM runtime_run WHERE status = 'completed'"


def test_ten_workers_end_each_run_once_on_ten_connections_each(sandbox: Path) -> None:
    stack, book = with_ledger(sandbox, "ten", holding.__name__, ABEYANCE_WORKERS=str(WORKERS))
    most: Counter[str] = Counter()
    with stack:
        # The stack says that it is ready when one worker is: the first ones could take every run.
        until(lambda: stack.rows(BEATING) == [(WORKERS,)] or None, "the workers", 120)
        Office(stack).execute(START.format(agent="borrower", number=RUNS))

        def done() -> bool | None:
            for name, count in stack.rows(CONNECTIONS):
                most[name] = max(most[name], count)
            return stack.rows(COMPLETED) == [(RUNS,)] or None

        until(done, "every run to end", 120)
        lost = stack.rows("SELECT count(*) FROM runtime_loss")
    effects = ledger.read(book)
    assert sorted(one.key for one in effects) == sorted(f"{n}/ask_postgres" for n in range(RUNS))
    assert len({one.process for one in effects}) == WORKERS
    assert lost == [(0,)]
    assert len([name for name in most if re.fullmatch(r"abeyance worker \d+", name)]) >= WORKERS
    assert max(most.values()) <= CONNECTIONS_OF_A_WORKER, most

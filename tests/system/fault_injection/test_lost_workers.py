"""200 runs of one worker that dies: when they go on, and what a run among them costs that ends each of its workers.

The figures are times. The tests compare numbers of processes, which no slow machine changes.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.execution.crash_loops import IN_A_ROW
from runtime.store.leases import ALONE
from tests.support import processes
from tests.support.people import until
from tests.support.scripted_agents import holding
from tests.support.stack import with_ledger
from tests.system.fault_injection.harness import figures
from tests.system.fault_injection.harness.counts import LONG
from tests.system.fault_injection.harness.records import seconds_until
from tests.system.holders import Holders

pytestmark = [pytest.mark.faults, pytest.mark.e2e]

RUNS = 200
POISON_LOSSES = 3
LEASE = "10" if LONG else "2"  # as everywhere, or shorter
START = """
import json
from django.db import transaction
from runtime import broker
from runtime.control.start import create
from runtime.ports.access import Actor
started = []
for _ in range({number}):
    with transaction.atomic():
        made = create(agent="lingering", input={{"name": {name!r}}}, requester=Actor(person="ada"))
    started.append(str(made.run))
broker._thread.flush()
print("started", json.dumps(started))
"""
HELD = "SELECT count(*) FROM runtime_run WHERE id = ANY(%s::uuid[]) AND owner IS NOT NULL"
ENDED = "SELECT count(*) FROM runtime_run WHERE id = ANY(%s::uuid[]) AND ended_at IS NOT NULL"
LOSSES = """
    SELECT run_id::text, worker::text, isolated, count(*) OVER (PARTITION BY worker) FROM runtime_lostlease
    WHERE run_id = ANY(%s::uuid[])
"""


@pytest.fixture(scope="module")
def holders(sandbox: Path) -> Iterator[Holders]:
    settings = {"SIGNOFF_POISON_LOSSES": str(POISON_LOSSES), "SIGNOFF_LEASE_SECONDS": LEASE}
    stack, book = with_ledger(sandbox, "lost", holding.__name__, **settings)
    with stack:
        yield Holders(stack, book)


def start_crowd(holders: Holders, name: str, number: int, *others: str) -> list[str]:
    """Have one worker hold so many runs, and these."""
    output = holders.execute(START.format(name=name, number=number))
    runs: list[str] = json.loads(output.split("started", 1)[1])
    until(
        lambda: count(holders, HELD, [*runs, *others]) == number + len(others) or None, "the claims"
    )
    return runs


def count(holders: Holders, statement: str, runs: list[str]) -> int:
    ((number,),) = holders.stack.rows(statement, runs)
    return int(number)


def wait_for_ends(holders: Holders, runs: list[str]) -> None:
    until(lambda: count(holders, ENDED, runs) == len(runs) or None, "the runs to end", 300)


def test_a_run_that_ends_each_worker_is_quarantined_and_the_others_go_on(holders: Holders) -> None:
    deadly = holders.begin("ends_it_later", name="deadly")
    runs = start_crowd(holders, "beside", RUNS - 1, deadly)
    worker = processes.of(holders.stack, "worker").process
    holders.release("deadly")
    worker.wait(60)
    holders.release("beside")
    wait_for_ends(holders, runs)
    quarantined = holders.wait(deadly, "quarantined")
    times = seconds_until(holders.stack, runs, "ToolReturned")
    figures.progress(f"with a deadly run among {RUNS}", times)

    assert f"{POISON_LOSSES} workers in a row died" in quarantined["reason"]
    losses = holders.stack.rows(LOSSES, [*runs, deadly])
    workers = {worker for _, worker, isolated, _ in losses if not isolated}
    shared = {worker for _, worker, isolated, size in losses if isolated and size > 1}
    alone = {worker for _, worker, isolated, size in losses if isolated and size == 1}
    assert len(workers) == IN_A_ROW
    assert len(shared) <= ALONE
    assert len(alone) >= POISON_LOSSES
    each = Counter(run for run, *_ in losses)
    assert each.pop(deadly) == IN_A_ROW + len(shared) + len(alone)
    assert max(each.values()) <= IN_A_ROW + ALONE
    statuses = {holders.run(run)["status"] for run in runs[:10]}
    assert statuses == {"completed"}
    figures.say(
        f"FIGURES a deadly run among {RUNS}: {len(workers)} workers, {len(shared)} groups and"
        f" {len(alone)} processes of its own died"
    )

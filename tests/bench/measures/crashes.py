"""A worker process is killed in the middle of a long run: how long it takes until another one goes on with it.

Ours waits until the lease of the killed one is over, and goes on in the isolated process. The baseline's parent process
sees that its child has gone, and puts the message back at once; were the parent killed too, the message would wait for
the broker's visibility timeout of an hour.
"""

import os
import signal
import time
from collections.abc import Callable, Sequence
from functools import partial
from uuid import UUID

import psutil

from tests.bench.figures import Line, number, spread
from tests.bench.rounds import Contender
from tests.bench.sides.desk import TIMEOUT_SECONDS
from tests.bench.sides.driver import SUSPENDED, Driver
from tests.support.site import Site

POSITIONS = {
    "ours": "SELECT position FROM runtime_run WHERE id = %s",
    "baseline": "SELECT seq FROM baseline_run WHERE id = %s",
}
SHARE = 0.5  # of its steps that the run has taken by then; the rest must outlast the look at who works on it
LOOK_SECONDS = 0.005


def measure(
    site: Site, driver: Driver, both: Sequence[Contender], steps: int, rounds: int
) -> list[Line]:
    """The seconds from the kill to the next step that is on disk; each side has as many workers afterwards."""
    isolated = site.isolated_worker()
    theirs, ours = ([_once(site, driver, one, steps) for _ in range(rounds)] for one in both)
    site.end(isolated)
    return [
        Line(
            what=f"killed after {SHARE:.0%} of {steps:,} steps: to the next step",
            value=spread(ours),
            unit=" s",
            reference=f"{number(spread(theirs).median)} s",
        )
    ]


def _once(site: Site, driver: Driver, one: Contender, steps: int) -> float:
    run = one.side.start("walk", {"steps": steps})
    at = partial(_position, site, one.side.name, run)
    _until(lambda: at() > SHARE * 2 * steps, f"run {run} to come so far")
    killed = _busiest([process for worker in one.workers for process in worker.pool()])
    os.kill(killed.pid, signal.SIGKILL)
    began = time.perf_counter()
    last = at()
    _until(lambda: at() > last, f"run {run} to go on")
    took = time.perf_counter() - began
    _replace(site, one, killed.pid)
    driver.wait(run, SUSPENDED)
    driver.finish(one.side, one.side.pending([run]), 1)
    return took


def _busiest(processes: Sequence[psutil.Process]) -> psutil.Process:
    """Return the process that uses the most processor time in the next 0.2 seconds."""
    before = [sum(process.cpu_times()[:2]) for process in processes]
    time.sleep(0.2)
    spent = [
        sum(process.cpu_times()[:2]) - was for process, was in zip(processes, before, strict=True)
    ]
    return processes[spent.index(max(spent))]


def _replace(site: Site, one: Contender, pid: int) -> None:
    """If it was one of ours, there are as many again afterwards; the baseline sees to that itself."""
    for number_, worker in enumerate(one.workers):
        if worker.process.pid == pid:
            site.end(worker)
            one.workers[number_] = site.worker()


def _position(site: Site, side: str, run: UUID) -> int:
    with site.connect() as connection:
        ((position,),) = connection.execute(POSITIONS[side], (run,)).fetchall()
    return int(str(position))


def _until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"waited {TIMEOUT_SECONDS:g} s for {what}"
        time.sleep(LOOK_SECONDS)

"""A worker process is killed in the middle of a long run: how long it takes until another one goes on with it.

Ours waits until the lease of the killed one is over, and goes on in the isolated process. The baseline's parent process
sees that its child has gone, and puts the message back at once; were the parent killed too, the message would wait for
the broker's visibility timeout of an hour.
"""

import os
import signal
import time
from collections.abc import Sequence
from uuid import UUID

import psutil

from tests.bench.figures import Line, median
from tests.bench.rounds import Contender
from tests.bench.sides.driver import SUSPENDED, Driver
from tests.bench.site import Site, cpu_of

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
    what = f"killed after {SHARE:.0%} of {steps:,} steps: to the next step"
    return [Line(what, ours, " s", reference=median(theirs, " s"))]


def _once(site: Site, driver: Driver, one: Contender, steps: int) -> float:
    run = one.side.start("walk", {"steps": steps})
    _wait_beyond(site, one.side.name, run, int(SHARE * 2 * steps))
    killed = _busiest([process for worker in one.workers for process in worker.pool()])
    os.kill(killed.pid, signal.SIGKILL)
    began = time.perf_counter()
    _wait_beyond(site, one.side.name, run, _position(site, one.side.name, run))
    took = time.perf_counter() - began
    for index, worker in enumerate(one.workers):  # the baseline replaces its own
        if worker.process.pid == killed.pid:
            site.end(worker)
            one.workers[index] = site.worker()
    driver.wait(run, SUSPENDED)
    driver.finish(one.side, one.side.pending([run]), 1)
    return took


def _busiest(processes: Sequence[psutil.Process]) -> psutil.Process:
    """Return the process that uses the most processor time in the next 0.2 seconds."""
    before = {process: cpu_of(process.pid) for process in processes}
    time.sleep(0.2)
    return max(processes, key=lambda process: cpu_of(process.pid) - before[process])


def _position(site: Site, side: str, run: UUID) -> int:
    with site.connect() as connection:
        ((position,),) = connection.execute(POSITIONS[side], (run,)).fetchall()
    return int(str(position))


def _wait_beyond(site: Site, side: str, run: UUID, position: int) -> None:
    deadline = time.monotonic() + 120.0
    while _position(site, side, run) <= position:
        assert time.monotonic() < deadline, f"run {run} does not come past {position}"
        time.sleep(LOOK_SECONDS)

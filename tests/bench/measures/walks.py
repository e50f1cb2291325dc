"""Long runs: the time of their steps, whether the last ones take longer, bytes, resuming, and a kill in the middle.

A step is a reply of the model with 1 KB of arguments and its result. The baseline commits each in a transaction of its
own; ours commits a result with the reply of the script that follows. After the last step the run waits at a gate;
resuming it loads the whole run.
"""

import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

import psutil

from tests.bench.figures import Line, median, ratio
from tests.bench.rounds import Contender, Cost
from tests.bench.sides.driver import SUSPENDED, Driver
from tests.bench.site import Site, cpu_of

POSITIONS = {
    "ours": "SELECT position FROM runtime_run WHERE id = %s",
    "baseline": "SELECT seq FROM baseline_run WHERE id = %s",
}
COMMITS = {"ours": 1, "baseline": 2}  # of a step
SHARE = 0.5  # of its steps that the run has taken by then; the rest must outlast the look at who works on it
LOOK_SECONDS = 0.005
GOALS = 1000  # the steps of the run that has goals


@dataclass(frozen=True, slots=True, kw_only=True)
class Walked:
    """One run: milliseconds to its gate and from its approval to its end, of its first and last steps; bytes.

    `cost` is of one step.
    """

    time: float
    resumed: float
    first: float
    last: float
    bytes: float
    cost: Cost


def measure(
    site: Site, driver: Driver, both: Sequence[Contender], steps: int, rounds: int
) -> list[Line]:
    """The lines of runs of so many steps, of both sides in turn; only the times of those without goals."""
    taken = [[_walk(site, driver, one, steps) for one in both] for _ in range(rounds)]
    theirs, ours = [one for one, _ in taken], [one for _, one in taken]

    def line(
        what: str, which: Callable[[Walked], float], unit: str, most: float | None = None
    ) -> Line:
        goal = {"most": most} if most and steps == GOALS else {}
        return ratio(
            what, [which(one) for one in ours], [which(one) for one in theirs], unit, **goal
        )

    time = line(f"{steps:,} steps: time", lambda one: one.time, " ms", 1.0)
    resumed = line("  approve → finished behind them", lambda one: one.resumed, " ms", 2.0)
    if steps != GOALS:
        return [time, resumed]
    first = median([one.first for one in ours], " ms")
    own = median([one.last / one.first for one in theirs], " ×")
    return [
        time,
        Line(
            "  a step of ours at the end to one at the start",
            [one.last / one.first for one in ours],
            " ×",
            most=1.1,
            ours=median([one.last for one in ours], " ms"),
            reference=f"{first}; the baseline's own {own}",
        ),
        line("  bytes", lambda one: one.bytes / 1024, " KB", 1.35),
        line("  CPU of a step, workers", lambda one: 1000 * one.cost.workers, " ms"),
        line(
            "  CPU of a step, with Postgres and the broker", lambda one: 1000 * one.cost.cpu, " ms"
        ),
        line("  statements of a step", lambda one: one.cost.statements, ""),
        line("  WAL of a step", lambda one: one.cost.wal / 1024, " KB"),
        resumed,
    ]


def _walk(site: Site, driver: Driver, one: Contender, steps: int) -> Walked:
    name = one.side.name
    before, meters = site.kept(name), one.read()
    started = driver.start(one.side, "walk", [{"steps": steps}], 1)
    cost = one.read() - meters
    finished = driver.finish(one.side, one.side.pending(started.runs), 1)
    return Walked(
        time=started.times[0],
        resumed=finished.times[0],
        bytes=site.kept(name) - before,
        cost=cost.less(one.idle) / steps,
        **json.loads(one.side.output(started.runs[0])),
    )


def killed(
    site: Site, driver: Driver, both: Sequence[Contender], steps: int, rounds: int
) -> list[Line]:
    """Kill a worker process in the middle of a run: the seconds to the next step that is on disk.

    Our run waits for the end of its worker's lease and continues in another worker. The baseline's parent
    process sees that its child has gone, and puts the message back at once; were the parent killed too, the message
    would wait for the broker's visibility timeout of an hour. Each side has as many workers afterwards.
    """
    theirs, ours = ([_once(site, driver, one, steps) for _ in range(rounds)] for one in both)
    what = f"killed after {SHARE:.0%} of {steps:,} steps: to the next step"
    return [Line(what, ours, " s", reference=median(theirs, " s"))]


def _once(site: Site, driver: Driver, one: Contender, steps: int) -> float:
    run = one.side.start("walk", {"steps": steps})
    _wait_beyond(site, one.side.name, run, int(SHARE * COMMITS[one.side.name] * steps))
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
    time.sleep(0.2)  # the time in which both are measured
    return max(processes, key=lambda process: cpu_of(process.pid) - before[process])


def _position(site: Site, side: str, run: UUID) -> int:
    with site.connect() as connection:
        ((position,),) = connection.execute(POSITIONS[side], (run,)).fetchall()
    return int(str(position))


def _wait_beyond(site: Site, side: str, run: UUID, position: int) -> None:
    deadline = time.monotonic() + 120.0
    while _position(site, side, run) <= position:
        assert time.monotonic() < deadline, f"run {run} does not come past {position}"
        time.sleep(LOOK_SECONDS)  # between two looks at the run; the deadline ends it

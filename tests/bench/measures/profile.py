"""The processor time of a worker by function: timers run while it executes only flows."""

import json
import os
import signal
import time
from pathlib import Path

from tests.bench.figures import Finding, Line, number, one
from tests.bench.meters import Cost, Meters
from tests.bench.rounds import Contender, take
from tests.bench.sides.desk import TIMEOUT_SECONDS, Desk
from tests.bench.sides.driver import (
    AT_ONCE,
    Driver,
    Ours,
    driving,
)
from tests.bench.sides.timers import (
    ALL,
    FILE,
    MAIN,
    Sums,
)
from tests.support.site import Program, Site

SHOWN = 30
NOTE = (
    "Milliseconds of processor time of one worker for each flow, of a function without the functions that have timers"
    " of their own; calls in the third column. With timers a flow takes {timed} ms of the worker, without {plain}."
)


def measure(site: Site, *, quick: bool) -> Finding:
    """The functions that take most of it, and the parts of the code they belong to."""
    flows = 100 if quick else 400
    path = site.folder / "timers.json"
    with driving(site) as driver:
        desk, sweeper = Desk(), site.sweeper()
        plain = site.worker()
        without = _flows(site, driver, desk, plain, flows)
        site.end(plain)
        worker = site.timed_worker(**{FILE: str(path)})
        _flows(site, driver, desk, worker, 16)  # until everything is imported and prepared
        before = _sums(worker, path)
        timed = _flows(site, driver, desk, worker, flows)
        after = _sums(worker, path)
        site.end(sweeper, worker)
    spent = per_flow(before, after, flows)
    total, main = spent.pop(ALL)[0], spent.pop(MAIN)[0]
    ranked = sorted(spent.items(), key=lambda item: -item[1][0])
    rest = total - main - sum(took for took, _ in spent.values())
    lines = [
        _line("the whole worker", total),
        _line(MAIN, main),
        _line("threads of runs outside the timed parts", rest),
        *(_line(name, took, calls) for name, (took, calls) in ranked[:SHOWN]),
    ]
    note = NOTE.format(timed=number(timed), plain=number(without))
    return Finding(title="Where a worker's time goes", lines=tuple(lines), notes=(note,))


def per_flow(before: Sums, after: Sums, flows: int) -> dict[str, tuple[float, float]]:
    """Milliseconds and calls of each function for one flow."""
    none = [0, 0]
    return {
        name: (
            (took - before.get(name, none)[0]) / 1e6 / flows,
            (calls - before.get(name, none)[1]) / flows,
        )
        for name, (took, calls) in after.items()
    }


def _flows(site: Site, driver: Driver, desk: Desk, worker: Program, flows: int) -> float:
    """Take so many flows; the worker's milliseconds for each."""
    meters = Meters(site, driver, [worker])
    contender = Contender(side=Ours(desk), workers=[worker], meters=meters, idle=Cost())
    return 1000 * take(driver, contender, flows, AT_ONCE).cost.workers


def _sums(worker: Program, path: Path) -> Sums:
    path.unlink(missing_ok=True)
    os.kill(worker.process.pid, signal.SIGUSR2)
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not path.exists():
        assert worker.process.poll() is None, worker.log.read_text()[-3000:]
        assert time.monotonic() < deadline, "the worker does not write its timers"
        time.sleep(0.02)
    return Sums(json.loads(path.read_text()))


def _line(what: str, took: float, calls: float | None = None) -> Line:
    return Line(
        what=what,
        value=one(took),
        unit=" ms",
        ours="" if calls is None else f"{number(calls)} calls",
    )

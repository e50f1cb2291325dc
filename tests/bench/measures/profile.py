"""The processor time of a worker by function: a profiler runs while it executes only flows."""

import json
import os
import signal
from pathlib import Path

from tests.bench.figures import Finding, Line, number
from tests.bench.rounds import Contender, take
from tests.bench.sides.desk import Desk
from tests.bench.sides.driver import AT_ONCE, Driver, driving
from tests.bench.sides.timers import ALL, FILE, MAIN, Sums
from tests.bench.site import Program, Site
from tests.support.people import until

SHOWN = 30
NOTE = (
    "Milliseconds of processor time of one worker for each flow, of a function of ours or of a library, without those"
    " that it calls; calls in the third column. With the profiler a flow takes {timed} ms of it, without {plain}."
)


def measure(site: Site, *, quick: bool) -> Finding:
    flows = 100 if quick else 400
    path = site.folder / "timers.json"
    with driving(site) as driver:
        desk, plain = Desk(), site.worker()
        without = _flows(site, driver, desk, plain, flows)
        site.end(plain)
        worker = site.worker("tests.bench.sides.timers", **{FILE: str(path)})
        _flows(site, driver, desk, worker, 16)  # until everything is imported and prepared
        before = _sums(worker, path)
        timed = _flows(site, driver, desk, worker, flows)
        after = _sums(worker, path)
        site.end(worker)
    spent = {
        name: [now - was for now, was in zip(sums, before.get(name, [0, 0]), strict=True)]
        for name, sums in after.items()
    }
    total, main = (spent.pop(name)[0] / 1e6 / flows for name in (ALL, MAIN))
    ranked = sorted(spent.items(), key=lambda item: -item[1][0])
    rest = total - main - sum(took for took, _ in spent.values()) / 1e6 / flows
    lines = [
        Line("the whole worker", [total], " ms"),
        Line(MAIN, [main], " ms"),
        Line("threads of runs outside Python", [rest], " ms"),
    ]
    for name, (took, calls) in ranked[:SHOWN]:
        lines.append(Line(name, [took / 1e6 / flows], " ms", ours=f"{number(calls / flows)} calls"))
    note = NOTE.format(timed=number(timed), plain=number(without))
    return Finding("Where a worker's time goes", lines, note)


def _flows(site: Site, driver: Driver, desk: Desk, worker: Program, flows: int) -> float:
    """Take so many flows; the worker's milliseconds for each."""
    contender = Contender(site, driver, desk, [worker])
    return 1000 * take(driver, contender, flows, AT_ONCE).cost.workers


def _sums(worker: Program, path: Path) -> Sums:
    path.unlink(missing_ok=True)
    os.kill(worker.process.pid, signal.SIGUSR2)
    until(lambda: path.exists() or None, "the worker to write its timers")
    return Sums(json.loads(path.read_text()))

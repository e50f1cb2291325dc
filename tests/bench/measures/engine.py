"""The engine against a loop written by hand, where nothing but the two costs anything.

Tools do nothing, in process; a script plays the model; there is no directory and no mail. The baseline is Celery and
Postgres with as many pool processes as ours has worker processes, one commit a step. Both take turns, round by round;
each ratio is of two neighbouring rounds.
"""

import os
import time
from dataclasses import dataclass, replace

from tests.bench.figures import Finding, Line, number, spread
from tests.bench.measures import (
    crashes,
    crowds,
    sizes,
    walks,
)
from tests.bench.meters import Cost, Meters
from tests.bench.rounds import Contender, of_cost, of_counts, of_speed, of_syncs, pairs, take
from tests.bench.sides.desk import Desk
from tests.bench.sides.driver import (
    AT_ONCE,
    Baseline,
    Driver,
    Ours,
    driving,
)
from tests.support.site import Program, Site

NOTE = (
    "{processes} worker processes of ours, each on a core of its own, and one Celery worker of {processes} pool"
    " processes. `Alone` is one flow at a time, `under load` {at_once} at once: first all are taken to their gate, then"
    " all are approved. The process that starts, approves and listens stands for the web process, on both sides; its"
    " time for listening is left out. Counts of Postgres exclude those of an idle server. Postgres neither vacuums nor"
    " checkpoints meanwhile."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The amounts of a measure: rounds, and flows in each; steps and rounds of long runs; flows to weigh.

    `syncs` flows are counted to see how often Postgres waited for the disk; `waiting` is how many are to wait at once.
    """

    rounds: int
    alone: int
    busy: int
    nested: int
    walks: dict[int, int]
    weighed: int
    rest: float
    syncs: int = 0
    waiting: int = 0
    crashes: int = 0


QUICK = Plan(rounds=5, alone=6, busy=40, nested=3, walks={200: 3, 1000: 1}, weighed=200, rest=3.0)
FULL = Plan(
    rounds=12,
    alone=12,
    busy=80,
    nested=6,
    walks={50: 10, 200: 10, 1000: 10},
    weighed=1000,
    rest=10.0,
    syncs=100,
    waiting=10_000,
    crashes=3,
)


def measure(site: Site, *, quick: bool) -> Finding:
    """Speed, cost of a flow by kind of process, counts, long runs, bytes, and a worker's start."""
    plan = QUICK if quick else FULL
    processes = os.cpu_count() or 1
    with driving(site) as driver, site.untidied():
        desk = Desk()
        sweeper, loop = site.sweeper(), site.baseline_worker()
        started, workers = _started(site, processes)
        both = _contenders(site, driver, desk, loop, workers, plan.rest)
        # Before long runs leave free pages behind, in which flows would go unnoticed.
        weighed = sizes.measure(site, driver, both, plan.weighed)
        busy = pairs(driver, both, plan.rounds, plan.busy, AT_ONCE)
        alone = pairs(driver, both, plan.rounds, plan.alone, 1)
        nested = pairs(driver, both, plan.rounds, plan.nested, 1, agent="delegate")
        lines = [*of_speed(alone, busy, nested), *of_cost(busy), *of_counts(busy)]
        for steps, rounds in plan.walks.items():
            lines += walks.measure(site, driver, both, steps, rounds)
        lines += weighed
        lines += _of_workers(started, loop, workers)
        if plan.syncs:
            lines += of_syncs(driver, both, plan.syncs, (1, AT_ONCE))
        if plan.crashes:
            lines += crashes.measure(site, driver, both, 1000, plan.crashes)
        if plan.waiting:
            lines += crowds.measure(site, driver, both, plan.waiting, alone)
        site.end(sweeper, loop, *workers)
    return Finding(
        title="The engine: tools that do nothing, against a Celery loop written by hand",
        lines=tuple(lines),
        notes=(NOTE.format(processes=processes, at_once=AT_ONCE),),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The start of a worker: seconds until it claimed runs, seconds of its CPU by then, its memory in MB."""

    seconds: float
    cpu: float
    memory: float


def _started(site: Site, count: int) -> tuple[list[Started], list[Program]]:
    """Workers, one after the other."""
    found, workers = [], []
    for _ in range(count):
        began = time.perf_counter()
        worker = site.worker()
        took = time.perf_counter() - began
        found.append(Started(seconds=took, cpu=worker.cpu(), memory=worker.share() / 1e6))
        workers.append(worker)
    return found, workers


def _contenders(
    site: Site, driver: Driver, desk: Desk, loop: Program, workers: list[Program], rest: float
) -> list[Contender]:
    """Both sides with everything imported and prepared."""
    sides = ((Baseline(), [loop]), (Ours(desk), workers))
    warm = [
        Contender(side=side, workers=programs, meters=Meters(site, driver, programs), idle=Cost())
        for side, programs in sides
    ]
    for one in warm:
        take(driver, one, 8 * len(workers), AT_ONCE)
        take(driver, one, 4, 1, agent="delegate")
        walked = driver.start(one.side, "walk", [{"steps": 50}], 1).runs
        driver.finish(one.side, one.side.pending(walked), 1)
    idle = warm[0].meters.rest(rest)
    return [replace(one, idle=idle) for one in warm]


def _of_workers(started: list[Started], loop: Program, workers: list[Program]) -> list[Line]:
    after = [worker.share() / 1e6 for worker in workers]
    return [
        Line(
            what="a worker is ready",
            value=spread([one.seconds for one in started]),
            unit=" s",
            most=2,
            ours=f"{number(spread([one.cpu for one in started]).median)} s of its CPU",
        ),
        Line(
            what="memory of a worker that is ready",
            value=spread([one.memory for one in started]),
            unit=" MB",
            most=120,
            ours=f"{number(spread(after).median)} MB after all of the above",
            reference=f"{number(loop.share() / 1e6)} MB, of all of the baseline's processes, after it",
        ),
    ]

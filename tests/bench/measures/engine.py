"""The engine against a loop written by hand, where nothing but the two costs anything.

Tools do nothing, in process; a script plays the model; there is no directory and no mail. The baseline is Celery and
Postgres with as many pool processes as ours has worker processes, one commit a step. Both take turns, round by round;
each ratio is of two neighbouring rounds.
"""

import os
import time
from dataclasses import dataclass

from tests.bench.figures import Finding, Line, median
from tests.bench.measures import crowds, walks
from tests.bench.rounds import Contender, Pair, compared, details, of_cost, pairs, take
from tests.bench.sides import baseline
from tests.bench.sides.desk import Desk
from tests.bench.sides.driver import AT_ONCE, Driver, driving
from tests.bench.site import Program, Site

NOTE = (
    "{processes} worker processes, each on its core, and one Celery worker of {processes} pool processes. `Alone` is"
    " one flow at a time, `under load` {at_once} at once, all taken to their gate before all are approved. On both"
    " sides one process stands for the web. Postgres neither vacuums nor checkpoints meanwhile."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The amounts of a measure: rounds, and flows in each; long runs; flows to weigh, and flows to wait at once."""

    rounds: int = 12
    alone: int = 12
    busy: int = 80
    nested: int = 6
    walks: int = 10
    weighed: int = 1000
    rest: float = 10.0
    waiting: int = 10_000


QUICK = Plan(rounds=5, alone=6, busy=40, nested=3, walks=1, weighed=200, rest=3.0, waiting=0)


def measure(site: Site, *, quick: bool) -> Finding:
    plan = QUICK if quick else Plan()
    processes = os.cpu_count() or 1
    with driving(site) as driver:
        desk, loop = Desk(), site.baseline_worker()
        started = [_started(site) for _ in range(processes)]
        workers = [worker for worker, *_ in started]
        both = [
            _warm(driver, Contender(site, driver, side, programs), plan.rest)
            for side, programs in ((baseline, [loop]), (desk, workers))
        ]
        # Before long runs leave free pages behind, in which flows would go unnoticed.
        weighed = crowds.sizes(site, driver, both, plan.weighed)
        busy = pairs(driver, both, plan.rounds, plan.busy, AT_ONCE)
        alone = pairs(driver, both, plan.rounds, plan.alone, 1)
        nested = pairs(driver, both, plan.rounds, plan.nested, 1, agent="delegate")
        lines = [*_of_speed(alone, busy, nested), *of_cost(busy, cpu=1.1), *details(busy)]
        lines += walks.measure(site, driver, both, plan.walks)
        lines += [*weighed, *_of_workers(started, loop)]
        if plan.waiting:
            lines += crowds.waiting(site, driver, both, plan.waiting)
        site.end(loop, *workers)
    return Finding(
        "The engine: tools that do nothing, against a Celery loop written by hand",
        lines,
        NOTE.format(processes=processes, at_once=AT_ONCE),
    )


def _started(site: Site) -> tuple[Program, float, float, float]:
    """A worker, the seconds until it claimed runs, the seconds of its CPU by then, its memory in MB."""
    began = time.perf_counter()
    worker = site.worker()
    return worker, time.perf_counter() - began, worker.cpu(), worker.memory() / 1e6


def _warm(driver: Driver, one: Contender, rest: float) -> Contender:
    """Take a side as far as everything is imported and prepared."""
    take(driver, one, 8 * (os.cpu_count() or 1), AT_ONCE)
    take(driver, one, 4, 1, agent="delegate")
    take(driver, one, 1, 1, agent="walk", given=lambda _: [{"steps": 50}])
    one.idle = one.rest(rest)
    return one


def _of_speed(alone: list[Pair], busy: list[Pair], nested: list[Pair]) -> list[Line]:
    def finished(what: str, taken: list[Pair], percent: int, most: float) -> Line:
        return compared(what, taken, lambda one: one.to_finish(percent), " ms", most=most)

    return [
        compared("flows a second, 8 at once", busy, lambda one: one.rate, "/s", least=1.0),
        compared("start → suspended, p50 alone", alone, lambda one: one.to_suspend(50), " ms"),
        finished("approve → finished, p50 alone", alone, 50, 1.25),
        finished("approve → finished, p95 under load", busy, 95, 1.4),
        finished("nested: approve → both finished, p50 alone", nested, 50, 1.25),
    ]


def _of_workers(started: list[tuple[Program, float, float, float]], loop: Program) -> list[Line]:
    workers, seconds, cpu, memory = zip(*started, strict=True)
    after = median([worker.memory() / 1e6 for worker in workers], " MB after all of the above")
    others = median([loop.memory() / 1e6], " MB, of all of the baseline's processes, after it")
    spent = median(cpu, " s of its CPU")
    return [
        Line("a worker is ready", seconds, " s", most=2, ours=spent),
        Line(
            "memory of a worker that is ready",
            memory,
            " MB",
            most=120,
            ours=after,
            reference=others,
        ),
    ]

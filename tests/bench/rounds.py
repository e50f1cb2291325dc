"""Rounds of flows, of one side and then of the other: their speed, their cost, and the comparison."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.bench.figures import Line, percentile, ratio
from tests.bench.meters import REPORTED_WITHIN, Cost, Meters
from tests.bench.sides.driver import AT_ONCE, Driven, Driver, Side
from tests.bench.sides.workload import newcomers
from tests.bench.site import Program


@dataclass(frozen=True, slots=True)
class Contender:
    """A side with its workers and their meters, and what Postgres counts of everything at rest."""

    side: Side
    workers: list[Program]
    meters: Meters
    idle: Cost = field(default_factory=Cost)


@dataclass(frozen=True, slots=True)
class Round:
    """A number of flows run to their gate, then to their end; `cost` is of one flow."""

    started: Driven
    finished: Driven
    cost: Cost

    @property
    def rate(self) -> float:
        return len(self.started.runs) / (self.started.seconds + self.finished.seconds)

    def to_suspend(self, percent: int) -> float:
        return percentile(self.started.times, percent)

    def to_finish(self, percent: int) -> float:
        return percentile(self.finished.times, percent)


Pair = tuple[Round, Round]  # the baseline's, ours


def take(
    driver: Driver,
    one: Contender,
    count: int,
    width: int,
    *,
    agent: str = "onboard",
    given: Callable[[int], Iterable[Any]] = newcomers,
) -> Round:
    before = one.meters.read()
    started = driver.start(one.side, agent, given(count), width)
    paused = one.meters.read()
    pending = one.side.pending(started.runs)
    pause = one.meters.read() - paused
    finished = driver.finish(one.side, pending, width)
    cost = one.meters.read() - before - pause
    return Round(started, finished, cost.less(one.idle) / count)


def pairs(
    driver: Driver, both: Sequence[Contender], rounds: int, count: int, width: int, **more: Any
) -> list[Pair]:
    """Rounds of both in turn; who goes first changes each time."""
    taken = []
    for turn in range(rounds):
        order = both if turn % 2 == 0 else both[::-1]
        found = {one.side.name: take(driver, one, count, width, **more) for one in order}
        taken.append((found[both[0].side.name], found[both[1].side.name]))
    return taken


def compared(
    what: str, taken: list[Pair], which: Callable[[Round], float], unit: str, **goal: float
) -> Line:
    """Ours over the baseline's: the median of neighbouring rounds."""
    ours, theirs = [which(one) for _, one in taken], [which(one) for one, _ in taken]
    return ratio(what, ours, theirs, unit, **goal)


def of_cost(busy: list[Pair]) -> list[Line]:
    """List the costs of a flow that have a goal."""
    return [
        compared("WAL of a flow", busy, lambda one: one.cost.wal / 1024, " KB", most=2.3),
        _cpu("CPU of a flow, web and workers", busy, lambda cost: cost.own, most=1.3),
        _cpu("CPU of a flow, with Postgres and the broker", busy, lambda cost: cost.cpu, most=1.3),
    ]


def _cpu(what: str, busy: list[Pair], which: Callable[[Cost], float], **goal: float) -> Line:
    return compared(what, busy, lambda one: 1000 * which(one.cost), " ms", **goal)


def details(busy: list[Pair]) -> list[Line]:
    """List the CPU of a flow by kind of process, and the counts of Postgres."""
    return [
        _cpu("  of which the web process's stand-in", busy, lambda cost: cost.driver),
        _cpu("  of which workers", busy, lambda cost: cost.workers),
        _cpu("  of which Postgres", busy, lambda cost: cost.postgres),
        _cpu("  of which broker", busy, lambda cost: cost.broker),
        compared("transactions of a flow that write", busy, lambda one: one.cost.wrote, ""),
        compared("statements of a flow", busy, lambda one: one.cost.statements, ""),
        compared("the same with BEGIN and COMMIT", busy, lambda one: one.cost.trips, ""),
    ]


def of_syncs(driver: Driver, both: Sequence[Contender], flows: int) -> list[Line]:
    """Count the waits of Postgres for the disk, which it reports only some time after it is idle."""
    meters = both[0].meters
    meters.rest(REPORTED_WITHIN)
    idle = meters.rest(REPORTED_WITHIN)

    def counted(one: Contender, width: int) -> float:
        before = one.meters.read()
        take(driver, one, flows, width)
        one.meters.rest(REPORTED_WITHIN)
        return (one.meters.read() - before).less(idle).syncs / flows

    found = {width: [counted(one, width) for one in both] for width in (1, AT_ONCE)}
    return [
        ratio(f"fsyncs of WAL of a flow, {width} at once", [ours], [theirs], "")
        for width, (theirs, ours) in found.items()
    ]

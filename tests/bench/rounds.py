"""Rounds of flows, of one side and then of the other: their speed, their cost, and the comparison."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.bench.figures import Line, Spread, number, one, percentile, ratios, spread
from tests.bench.meters import REPORTED_WITHIN, Cost, Meters
from tests.bench.sides.driver import Driven, Driver, Side
from tests.bench.sides.workload import newcomers
from tests.support.site import Program


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A side with its workers and their meters, and what Postgres counts of everything at rest."""

    side: Side
    workers: list[Program]
    meters: Meters
    idle: Cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """A number of flows run to their gate, then to their end; `cost` is of one flow."""

    started: Driven
    finished: Driven
    cost: Cost

    @property
    def rate(self) -> float:
        """Flows a second."""
        return len(self.started.runs) / (self.started.seconds + self.finished.seconds)

    def to_suspend(self, percent: float) -> float:
        return percentile(self.started.times, percent)

    def to_finish(self, percent: float) -> float:
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
    """One round of one side."""
    before = one.meters.read()
    started = driver.start(one.side, agent, given(count), width)
    paused = one.meters.read()
    pending = one.side.pending(started.runs)
    resumed = one.meters.read()
    finished = driver.finish(one.side, pending, width)
    cost = (paused - before) + (one.meters.read() - resumed)
    return Round(started=started, finished=finished, cost=cost.less(one.idle) / count)


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


def of_speed(alone: list[Pair], busy: list[Pair], nested: list[Pair]) -> list[Line]:
    """List the times that a person waits."""
    return [
        compared("flows a second, 8 at once", busy, lambda one: one.rate, "/s", least=0.85),
        compared("start → suspended, p50 alone", alone, lambda one: one.to_suspend(50), " ms"),
        compared(
            "approve → finished, p50 alone", alone, lambda one: one.to_finish(50), " ms", most=1.25
        ),
        compared(
            "approve → finished, p95 under load",
            busy,
            lambda one: one.to_finish(95),
            " ms",
            most=1.4,
        ),
        compared(
            "nested: approve → both finished, p50 alone",
            nested,
            lambda one: one.to_finish(50),
            " ms",
            most=1.25,
        ),
    ]


def of_cost(busy: list[Pair]) -> list[Line]:
    """List the costs of a flow: goals first, then each kind of process."""

    def milliseconds(which: Callable[[Cost], float]) -> Callable[[Round], float]:
        return lambda one: 1000 * which(one.cost)

    kinds = (
        ("the web process's stand-in", lambda cost: cost.driver),
        ("workers", lambda cost: cost.workers),
        ("Postgres", lambda cost: cost.postgres),
        ("broker", lambda cost: cost.broker),
    )
    return [
        compared(
            "CPU of a flow, web and workers",
            busy,
            milliseconds(lambda cost: cost.own),
            " ms",
            most=1.3,
        ),
        compared(
            "CPU of a flow, with Postgres and the broker",
            busy,
            milliseconds(lambda cost: cost.cpu),
            " ms",
            most=1.3,
        ),
        *(
            compared(f"  of which {name}", busy, milliseconds(which), " ms")
            for name, which in kinds
        ),
    ]


def of_counts(busy: list[Pair]) -> list[Line]:
    """List Postgres's counts of a flow."""
    return [
        compared("WAL of a flow", busy, lambda one: one.cost.wal / 1024, " KB", most=2.3),
        compared("transactions of a flow that write", busy, lambda one: one.cost.wrote, ""),
        compared("statements of a flow", busy, lambda one: one.cost.statements, ""),
        compared("the same with BEGIN and COMMIT", busy, lambda one: one.cost.trips, ""),
    ]


def compared(
    what: str, taken: list[Pair], which: Callable[[Round], float], unit: str, **goal: float
) -> Line:
    """Ours over the baseline's: the median of neighbouring rounds."""
    return line(
        what,
        [which(ours) for _, ours in taken],
        [which(baseline) for baseline, _ in taken],
        unit,
        **goal,
    )


def of_syncs(
    driver: Driver, both: Sequence[Contender], flows: int, widths: Sequence[int]
) -> list[Line]:
    """Count the waits of Postgres for the disk, which it reports only some time after it is idle."""
    meters = both[0].meters
    meters.rest(REPORTED_WITHIN)
    idle = meters.rest(REPORTED_WITHIN)

    def counted(one: Contender, width: int) -> float:
        before = one.meters.read()
        take(driver, one, flows, width)
        one.meters.rest(REPORTED_WITHIN)
        return (one.meters.read() - before).less(idle).syncs / flows

    found = {width: [counted(one, width) for one in both] for width in widths}
    return [
        line(f"fsyncs of WAL of a flow, {width} at once", [ours], [theirs], "")
        for width, (theirs, ours) in found.items()
    ]


def line(
    what: str, ours: Sequence[float], theirs: Sequence[float], unit: str, **goal: float
) -> Line:
    """A ratio with the medians that it is of."""
    return Line(
        what=what,
        value=_ratios(ours, theirs),
        unit=" ×",
        ours=f"{number(spread(ours).median)}{unit}",
        reference=f"{number(spread(theirs).median)}{unit}",
        **goal,
    )


def _ratios(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Return the ratios of rounds, or of the sums if a figure is zero in some round."""
    if all(theirs):
        return ratios(ours, theirs)
    return one(sum(ours) / sum(theirs)) if sum(theirs) else one(0.0)

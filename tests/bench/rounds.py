"""Rounds of flows, of one side and then of the other: their speed, their cost, and the comparison.

A cost is processor time of every kind of process, and Postgres's own counts.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from tests.bench.figures import Line, percentile, ratio
from tests.bench.sides.driver import Driven, Driver, Side
from tests.bench.sides.workload import newcomers
from tests.bench.site import Program, Site, cpu_of

READ = """
    SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS wrote,
        (SELECT coalesce(sum(calls) FILTER (WHERE query !~* '^(BEGIN|COMMIT|ROLLBACK|SAVEPOINT|RELEASE)'), 0)
            FROM pg_stat_statements) AS statements,
        (SELECT coalesce(sum(calls), 0) FROM pg_stat_statements) AS trips,
        pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0') AS wal
"""
COUNTS = ("wrote", "statements", "trips", "wal")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Seconds of wall clock and of processor time, and counts.

    `wrote` counts transactions that wrote, `statements` those without BEGIN and COMMIT, `trips` with them, `wal` bytes.
    """

    seconds: float = 0.0
    driver: float = 0.0
    workers: float = 0.0
    postgres: float = 0.0
    broker: float = 0.0
    wrote: float = 0.0
    statements: float = 0.0
    trips: float = 0.0
    wal: float = 0.0

    @property
    def own(self) -> float:
        """Processor time of the web process's stand-in and the workers."""
        return self.driver + self.workers

    @property
    def cpu(self) -> float:
        """Processor time of everything."""
        return self.own + self.postgres + self.broker

    def __sub__(self, other: "Cost") -> "Cost":
        return Cost(**{name: value - getattr(other, name) for name, value in asdict(self).items()})

    def __truediv__(self, number: float) -> "Cost":
        return Cost(**{name: value / number for name, value in asdict(self).items()})

    def less(self, idle: "Cost") -> "Cost":
        """Without what Postgres counted of everything at rest, for as many seconds; processor time stays as it is."""
        share = self.seconds / idle.seconds if idle.seconds else 0.0
        return self - Cost(**{name: getattr(idle, name) * share for name in COUNTS})


class Meters:
    """Reads the costs of a site so far, for one side's workers."""

    def __init__(self, site: Site, workers: list[Program], driver: Driver | None = None) -> None:
        self.workers = workers
        self._site, self._driver = site, driver
        self._connection = site.connect()

    def read(self) -> Cost:
        (row,) = self._connection.execute(READ).fetchall()
        return Cost(
            seconds=time.perf_counter(),
            driver=self._driver.cpu() if self._driver else 0.0,
            workers=sum(worker.cpu() for worker in self.workers),
            postgres=self._site.postgres_cpu(),
            broker=cpu_of(self._site.broker.pid),
            **{name: float(str(value)) for name, value in zip(COUNTS, row, strict=True)},
        )

    def rest(self, seconds: float) -> Cost:
        """Cost of an idle side: of each count the median of five stretches, because the rest of the flows before
        comes in bursts."""
        stretches = []
        for _ in range(5):
            before = self.read()
            time.sleep(seconds / 5)  # what an idle side costs in this time is measured
            stretches.append(asdict(self.read() - before))
        return Cost(**{name: median(row[name] for row in stretches) for name in stretches[0]})


class Contender(Meters):
    """A side with its workers and their meters, and what Postgres counts of everything at rest."""

    def __init__(self, site: Site, driver: Driver, side: Side, workers: list[Program]) -> None:
        super().__init__(site, workers, driver)
        self.side = side
        self.idle = Cost()


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
    before = one.read()
    started = driver.start(one.side, agent, given(count), width)
    paused = one.read()
    pending = one.side.pending(started.runs)
    pause = one.read() - paused
    finished = driver.finish(one.side, pending, width)
    cost = one.read() - before - pause
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


def of_cost(busy: list[Pair], *, cpu: float) -> list[Line]:
    """List the costs of a flow that have a goal, `cpu` for that of processor time."""
    return [
        compared("WAL of a flow", busy, lambda one: one.cost.wal / 1024, " KB", most=2.3),
        _cpu("CPU of a flow, web and workers", busy, lambda cost: cost.own, most=cpu),
        _cpu("CPU of a flow, with Postgres and the broker", busy, lambda cost: cost.cpu, most=cpu),
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

"""Measures costs: processor time of every kind of process, and Postgres's own counts."""

import time
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, fields

import psutil

from tests.bench.sides.driver import Driver
from tests.support.site import Program, Site

READ = """
    SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint,
        (SELECT coalesce(sum(calls) FILTER (WHERE query !~* '^(BEGIN|COMMIT|ROLLBACK|SAVEPOINT|RELEASE)'), 0)
            FROM pg_stat_statements),
        (SELECT coalesce(sum(calls), 0) FROM pg_stat_statements),
        pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0'),
        (SELECT coalesce(sum(fsyncs), 0) FROM pg_stat_io WHERE object = 'wal'),
        pg_stat_clear_snapshot()::text
"""
# A process that has come to rest tells Postgres' collector of its last second only then.
REPORTED_WITHIN = 10.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Seconds of wall clock and of processor time, and counts.

    `wrote` counts transactions that wrote, `statements` those without BEGIN and COMMIT, `trips` with them, `wal` bytes.
    `syncs` is only right if everything was at rest for REPORTED_WITHIN before and after.
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
    syncs: float = 0.0

    @property
    def own(self) -> float:
        """Processor time of the web process's stand-in and the workers."""
        return self.driver + self.workers

    @property
    def cpu(self) -> float:
        """Processor time of everything."""
        return self.own + self.postgres + self.broker

    def __add__(self, other: "Cost") -> "Cost":
        return _each(lambda one, two: one + two, self, other)

    def __sub__(self, other: "Cost") -> "Cost":
        return _each(lambda one, two: one - two, self, other)

    def __truediv__(self, number: float) -> "Cost":
        return _each(lambda one, _: one / number, self, self)

    def less(self, idle: "Cost") -> "Cost":
        """Without what Postgres counted of everything at rest, for as many seconds; processor time stays as it is."""
        share = self.seconds / idle.seconds if idle.seconds else 0.0
        counted = ("wrote", "statements", "trips", "wal", "syncs")
        rest = {name: getattr(idle, name) * share for name in counted}
        return self - Cost(**rest)


def _each(act: Callable[[float, float], float], one: Cost, two: Cost) -> Cost:
    values = map(act, astuple(one), astuple(two))
    return Cost(**dict(zip([field.name for field in fields(Cost)], values, strict=True)))


class Meters:
    """Reads the costs of a site so far, for one side's workers."""

    def __init__(self, site: Site, driver: Driver, workers: Sequence[Program]) -> None:
        self._site, self._driver, self._workers = site, driver, workers
        self._connection = site.connect()
        self._broker = psutil.Process(site.broker.pid)

    def read(self) -> Cost:
        (row,) = self._connection.execute(READ).fetchall()
        wrote, statements, trips, wal, syncs = (float(str(value)) for value in row[:5])
        broker = self._broker.cpu_times()
        return Cost(
            seconds=time.perf_counter(),
            driver=self._driver.cpu(),
            workers=sum(worker.cpu() for worker in self._workers),
            postgres=self._site.postgres_cpu(),
            broker=float(broker.user + broker.system),
            wrote=wrote,
            statements=statements,
            trips=trips,
            wal=wal,
            syncs=syncs,
        )

    def rest(self, seconds: float) -> Cost:
        """Measure the cost at rest."""
        before = self.read()
        time.sleep(seconds)
        return self.read() - before

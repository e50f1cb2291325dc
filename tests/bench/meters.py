"""Measures costs: processor time of every kind of process, and Postgres's own counts."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from tests.bench.sides.driver import Driver
from tests.bench.site import Program, Site, cpu_of

READ = """
    SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS wrote,
        (SELECT coalesce(sum(calls) FILTER (WHERE query !~* '^(BEGIN|COMMIT|ROLLBACK|SAVEPOINT|RELEASE)'), 0)
            FROM pg_stat_statements) AS statements,
        (SELECT coalesce(sum(calls), 0) FROM pg_stat_statements) AS trips,
        pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0') AS wal,
        (SELECT coalesce(sum(fsyncs), 0) FROM pg_stat_io WHERE object = 'wal') AS syncs,
        pg_stat_clear_snapshot()::text
"""
COUNTS = ("wrote", "statements", "trips", "wal", "syncs")
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

    def __init__(
        self, site: Site, workers: Sequence[Program], driver: Driver | None = None
    ) -> None:
        self._site, self._workers, self._driver = site, workers, driver
        self._connection = site.connect()

    def read(self) -> Cost:
        (row,) = self._connection.execute(READ).fetchall()
        return Cost(
            seconds=time.perf_counter(),
            driver=self._driver.cpu() if self._driver else 0.0,
            workers=sum(worker.cpu() for worker in self._workers),
            postgres=self._site.postgres_cpu(),
            broker=cpu_of(self._site.broker.pid),
            **{name: float(str(value)) for name, value in zip(COUNTS, row, strict=False)},
        )

    def rest(self, seconds: float) -> Cost:
        before = self.read()
        time.sleep(seconds)
        return self.read() - before

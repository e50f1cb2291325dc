"""Due timers: how long two sweepers take to send a hint for each of very many runs that are due at once.

The rows are written by SQL, as of runs whose timer ran out within the last hour. This process stands for the workers:
it takes every hint off the broker's queues at once and does nothing else. So the runs stay due, and are hinted at
again after a few seconds, as if every hint had been lost; what counts is the first hint of each.
"""

import base64
import json
import os
import time
from collections import Counter
from dataclasses import dataclass, field

import psutil
import psycopg
import redis

from runtime.broker import dispatch
from tests.bench.figures import Finding, Line, number, one
from tests.support.site import Program, Site

SWEEPERS = 2
TIMEOUT_SECONDS = 1800.0

RUNS = """
    INSERT INTO runtime_run (id, agent, requester, input, status, position, head, base, due_at)
    SELECT abeyance_uuid7(clock_timestamp()), 'seeded', 'ada', '{"text": "a timer that ran out"}', 'waiting', 1, '', 1,
        clock_timestamp() - random() * interval '1 hour'
    FROM generate_series(1, %s)
"""


@dataclass(kw_only=True)
class Hints:
    """Hints read from the broker: distinct runs, hints in all, and hints by process."""

    broker: "redis.Redis"
    runs: set[bytes] = field(default_factory=set)
    total: int = 0
    senders: Counter[str] = field(default_factory=Counter)

    def take(self) -> int:
        """Take what lies in the queues now. Returns how many hints."""
        taken = 0
        for queue in (dispatch.RESUMED, dispatch.NEW):
            found = self.broker.rpop(queue, 1000)
            assert found is None or isinstance(found, list)
            for message in found or ():
                task = json.loads(message)
                self.runs.add(base64.b64decode(task["body"])[3:39])  # [["…id…"], {}, …
                self.senders[task["headers"]["origin"]] += 1
                taken += 1
        self.total += taken
        return taken


def measure(site: Site, *, quick: bool) -> Finding:
    """One million, or a tenth of it."""
    count = 100_000 if quick else 1_000_000
    began = time.monotonic()
    _seed(site, count)
    seeded = time.monotonic() - began
    hints = Hints(broker=redis.Redis.from_url(os.environ["REDIS_URL"]))
    with site.connect() as connection:
        place = _wal(connection)
        cpu = {"Postgres": site.postgres_cpu(), "broker": _cpu(site.broker.pid)}
        began = time.monotonic()
        sweepers = [site.sweeper() for _ in range(SWEEPERS)]
        took = _until_hinted(hints, count, began, sweepers)
        wal = connection.execute("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), %s)", (place,))
        (written,) = wal.fetchone() or (0,)
    used = {
        "Postgres": site.postgres_cpu() - cpu["Postgres"],
        "broker": _cpu(site.broker.pid) - cpu["broker"],
        "sweepers": sum(sweeper.cpu() for sweeper in sweepers),
    }
    site.end(*sweepers)
    _tidy(site, hints)
    shares = sorted(hints.senders.values(), reverse=True)
    return Finding(
        title=f"{count:,} due timers, {SWEEPERS} sweepers",
        lines=(
            Line(
                what="minutes from the start of the sweepers until each had a hint",
                value=one(took / 60),
                most=10 * count / 1_000_000,
                ours=f"{took:.0f} s, {count / took:,.0f} a second",
            ),
            Line(
                what="the smaller share of the hints to the greater",
                value=one(shares[-1] / shares[0] if len(shares) == SWEEPERS else 0.0),
                unit=" ×",
                ours=", ".join(f"{share:,}" for share in shares),
            ),
            Line(what="hints sent for each run", value=one(hints.total / count)),
            Line(what="WAL for each hint", value=one(int(str(written)) / hints.total), unit=" B"),
            Line(
                what="processor time for each hint",
                value=one(1e6 * sum(used.values()) / hints.total),
                unit=" us",
                ours=", ".join(
                    f"{name} {number(1e6 * seconds / hints.total)} us"
                    for name, seconds in used.items()
                ),
            ),
        ),
        notes=(
            f"The rows were written in {seeded:.0f} s. The bench took the hints off the broker on the same cores.",
        ),
    )


def _seed(site: Site, count: int) -> None:
    with site.connect() as connection:
        connection.execute("SET synchronous_commit = off")
        connection.execute(RUNS, (count,))
        connection.execute("VACUUM ANALYZE runtime_run")
        connection.execute("CHECKPOINT")


def _until_hinted(hints: Hints, count: int, began: float, sweepers: list[Program]) -> float:
    said = began
    while len(hints.runs) < count:
        if not hints.take():
            time.sleep(0.005)
        now = time.monotonic()
        for sweeper in sweepers:
            assert sweeper.process.poll() is None, sweeper.log.read_text()[-3000:]
        assert now - began < TIMEOUT_SECONDS, (
            f"{len(hints.runs):,} of {count:,} in {TIMEOUT_SECONDS:.0f} s"
        )
        if os.environ.get("DUE_PROGRESS") and now - said > 5:
            said = now
            print(f"{now - began:.0f} s: {len(hints.runs):,} of {hints.total:,}", flush=True)  # noqa: T201
    return time.monotonic() - began


def _tidy(site: Site, hints: Hints) -> None:
    """Nothing of it is left to be hinted at or vacuumed during another measure."""
    while hints.take():
        pass
    with site.connect() as connection:
        connection.execute("TRUNCATE runtime_run CASCADE")


def _wal(connection: "psycopg.Connection[tuple[object, ...]]") -> object:
    row = connection.execute("SELECT pg_current_wal_lsn()").fetchone()
    assert row is not None
    return row[0]


def _cpu(process: int) -> float:
    times = psutil.Process(process).cpu_times()
    return float(times.user + times.system)

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

import redis

from runtime import broker
from tests.bench.figures import Finding, Line, number
from tests.bench.rounds import Meters
from tests.bench.site import Site

SWEEPERS = 2
TIMEOUT_SECONDS = 1800.0

RUNS = """
    INSERT INTO runtime_run (id, agent, requester, input, status, position, head, base, due_at)
    SELECT signoff_uuid7(clock_timestamp()), 'seeded', 'ada', '{"text": "a timer that ran out"}', 'waiting', 1, '', 1,
        clock_timestamp() - random() * interval '1 hour'
    FROM generate_series(1, %s)
"""


@dataclass
class Hints:
    """Hints read from the broker: distinct runs, and hints by process."""

    broker: "redis.Redis"
    runs: set[bytes] = field(default_factory=set)
    senders: Counter[str] = field(default_factory=Counter)

    def take(self) -> int:
        """Take what lies in the queues now. Returns how many hints."""
        taken = 0
        for queue in (broker.RESUMED, broker.NEW):
            found = self.broker.rpop(queue, 1000)
            assert found is None or isinstance(found, list)
            for message in found or ():
                task = json.loads(message)
                self.runs.add(base64.b64decode(task["body"])[3:39])  # [["…id…"], {}, …
                self.senders[task["headers"]["origin"]] += 1
                taken += 1
        return taken


def measure(site: Site, *, quick: bool) -> Finding:
    count = 100_000 if quick else 1_000_000
    site.seed(RUNS, count, tables=["runtime_run"])
    hints = Hints(redis.Redis.from_url(os.environ["REDIS_URL"]))
    meters = Meters(site, [])
    before = meters.read()
    began = time.monotonic()
    sweepers = [site.sweeper() for _ in range(SWEEPERS)]
    while len(hints.runs) < count:
        if not hints.take():
            time.sleep(0.005)  # between two looks at the queues
        for sweeper in sweepers:
            assert sweeper.process.poll() is None, sweeper.log.read_text()[-3000:]
        assert time.monotonic() - began < TIMEOUT_SECONDS, f"{len(hints.runs):,} of {count:,}"
    took = time.monotonic() - began
    cost = meters.read() - before
    swept = sum(sweeper.cpu() for sweeper in sweepers)
    total = hints.senders.total()
    shares = sorted(hints.senders.values(), reverse=True)
    site.end(*sweepers)
    while hints.take():  # nothing is left to be hinted at or vacuumed during another measure
        pass
    with site.connect() as connection:
        connection.execute("TRUNCATE runtime_run CASCADE")
    spent = {"Postgres": cost.postgres, "broker": cost.broker, "sweepers": swept}
    each = {name: 1e6 * seconds / total for name, seconds in spent.items()}
    return Finding(
        f"{count:,} due timers, {SWEEPERS} sweepers",
        (
            Line(
                "minutes from the start of the sweepers until each had a hint",
                [took / 60],
                most=10 * count / 1_000_000,
                ours=f"{took:.0f} s, {count / took:,.0f} a second",
            ),
            Line(
                "the smaller share of the hints to the greater",
                [shares[-1] / shares[0] if len(shares) == SWEEPERS else 0.0],
                " ×",
                ours=", ".join(f"{share:,}" for share in shares),
            ),
            Line("hints sent for each run", [total / count]),
            Line("WAL for each hint", [cost.wal / total], " B"),
            Line(
                "processor time for each hint",
                [sum(each.values())],
                " us",
                ours=", ".join(f"{name} {number(time)} us" for name, time in each.items()),
            ),
        ),
        "The bench took the hints off the broker on the same cores.",
    )

"""Many runs under seven faults at once: nothing is lost, nothing is repeated, and all of them end.

All the time, at random moments: Postgres is restarted, the broker is killed or emptied, a worker is stopped past its
lease, a worker is killed, every connection to Postgres is cut; and of three workers one is an hour ahead and one an
hour behind. FAULTS_R3 says how many runs there are, FAULTS_R3_PAUSE how many seconds there are between two faults at
most, FAULTS_SEED in which order they come.
"""

import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread

import psutil
import psycopg
import pytest
import redis

from tests.support import clock, processes
from tests.support.scripted_agents.scores import errands
from tests.support.stack import Stack
from tests.system.fault_injection.harness import figures
from tests.system.fault_injection.harness.counts import count
from tests.system.fault_injection.harness.crew import Crew, stack_of

pytestmark = [pytest.mark.faults, pytest.mark.e2e]

RUNS = count("R3", short=300, long=20_000)
SEED = int(os.environ.get("FAULTS_SEED", "1"))
LEASE = 2.0
BATCH, FEW = 40, 10  # runs: started in one go, and open when the faults stop
PAUSE = count("R3_PAUSE", short=8, long=12)  # seconds between two faults, at most
HOURS = (1, -1)  # by which the clocks of two more workers are wrong


def test_seven_faults_at_once_lose_and_repeat_no_run(sandbox: Path) -> None:
    stack, book = stack_of(sandbox, "soak", ABEYANCE_LEASE_SECONDS=f"{LEASE:g}")
    with stack, ExitStack() as more:
        for hours in HOURS:
            late = {clock.HOURS: str(hours)}
            more.enter_context(processes.another(stack, "worker", f"clock{hours:+d}", **late))
        faults = Faults(stack, random.Random(SEED))
        crew = Crew(stack, book)
        with faults.at_work():
            for number in range(RUNS):
                crew.start(errands(), f"soak-{number}")
                if number % BATCH == BATCH - 1:
                    crew.work_until(BATCH, within=300)
            crew.work_until(FEW, within=180 + RUNS)
        crew.work_until(0, within=180 + RUNS)
        wrong, _ = crew.judge(f"soak, seed {SEED}", kills=faults.done.total())
    figures.say(
        f"faults: {dict(faults.done)}, {faults.missed} missed, {len(HOURS)} workers whose clock is wrong"
    )
    assert wrong == []
    assert set(faults.done) == set(faults.kinds) or faults.done.total() < len(faults.kinds)


class Faults:
    """Does harm from a thread of its own until the block is over."""

    def __init__(self, stack: Stack, chance: random.Random) -> None:
        self._stack = stack
        self._chance = chance
        self._over = Event()
        self.done: Counter[str] = Counter()
        self.missed = 0
        self.kinds: dict[str, Callable[[], None]] = {
            "Postgres restarted": self._restart_postgres,
            "broker killed": self._kill_broker,
            "broker emptied": self._empty_broker,
            "worker stopped": self._stop_a_worker,
            "worker killed": self._kill_a_worker,
            "connections cut": self._cut_connections,
        }

    @contextmanager
    def at_work(self) -> Iterator[None]:
        thread = Thread(target=self._work)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _work(self) -> None:
        """Each kind once in every round, in any order; one that finds nothing to harm comes again later in it."""
        left: list[str] = []
        while not self._over.wait(self._chance.uniform(0, PAUSE)):
            left = left or self._chance.sample(list(self.kinds), len(self.kinds))
            name = left.pop()
            try:
                self.kinds[name]()
                self.done[name] += 1
            except (psutil.Error, psycopg.Error, redis.RedisError, LookupError):
                self.missed += 1  # its target is gone already
                left.insert(0, name)

    def _restart_postgres(self) -> None:
        self._stack.named("postgres")[0].send_signal(signal.SIGQUIT)

    def _kill_broker(self) -> None:
        processes.of(self._stack, "broker").process.kill()

    def _empty_broker(self) -> None:
        with redis.Redis.from_url(
            self._worker().environ()["REDIS_URL"], socket_timeout=1
        ) as broker:
            broker.flushall()

    def _kill_a_worker(self) -> None:
        self._worker().kill()

    def _stop_a_worker(self) -> None:
        worker = self._worker()
        worker.suspend()
        self._over.wait(LEASE * 1.5)
        worker.resume()

    def _cut_connections(self) -> None:
        with psycopg.connect(self._stack.superuser_url, connect_timeout=2) as one:
            one.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )

    def _worker(self) -> psutil.Process:
        """The stack's own, which is started again when it dies. Raises LookupError if there is none now."""
        found = self._stack.named("resumed,runs")
        own = [one for one in found if clock.HOURS not in one.environ()]
        return own[0]

"""Parts of a whole application die, stop and lose what they have while runs move: nothing is lost or repeated.

FAULTS_SEED says which faults come, FAULTS_R2 how many parts are killed, FAULTS_R2_KINDS of what, with commas between
(of everything there is, or of `worker,web,sweeper` alone, beside a Postgres and a broker that live), FAULTS_R3 how many
runs meet seven faults at once, FAULTS_R3_PAUSE how many seconds there are between two of those at most, FAULTS_R6 how
many times Postgres dies while people decide, FAULTS_R6_SECONDS how long it is gone and FAULTS_R6_WRITES how many writes
are under way meanwhile.
"""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread

import psutil
import psycopg
import pytest
import redis

from config.local.http_client import Unreachable
from tests.support import processes
from tests.support.people import until
from tests.support.scripted_agents import flows
from tests.support.scripted_agents.scores import crowd, effects, errands, labours, transactions
from tests.support.stack import Stack
from tests.system.fault_injection.harness import figures
from tests.system.fault_injection.harness.counts import count
from tests.system.fault_injection.harness.crew import Crew, stack_of

pytestmark = [pytest.mark.faults, pytest.mark.e2e]

SEED = int(os.environ.get("FAULTS_SEED", "1"))
LEASE = 2.0  # of the stack


@pytest.fixture(scope="module")
def whole(sandbox: Path) -> Iterator[tuple[Stack, Path]]:
    """One application for all of these tests, which leave it running, and its ledger."""
    stack, book = stack_of(sandbox, "faults")
    with stack:
        yield stack, book


@pytest.fixture
def stack(whole: tuple[Stack, Path]) -> Stack:
    return whole[0]


@pytest.fixture
def crew(whole: tuple[Stack, Path]) -> Crew:
    return Crew(*whole)


# Random kills

KILLS = count("R2", short=8, long=1000)
MAX_GAP_SECONDS = 1.5  # seconds between two deaths
# How to know the processes of one kind by their command line.
KINDS = {
    "worker": "config.worker",
    "web": "config.web",
    "sweeper": "sweep",
    "Postgres": "postgres",
    "broker": "valkey",
}
EVERYTHING = "everything"
KILLED = os.environ.get("FAULTS_R2_KINDS", ",".join((*KINDS, EVERYTHING))).split(",")
assert set(KILLED) <= {*KINDS, EVERYTHING}, f"FAULTS_R2_KINDS: of {', '.join((*KINDS, EVERYTHING))}"


def test_random_crashes_lose_and_repeat_nothing(stack: Stack, crew: Crew) -> None:
    chance = random.Random(SEED)
    killed: Counter[str] = Counter()
    for number in range(KILLS):
        for twin in range(2):
            score = chance.choice((crowd, effects, transactions))()
            crew.start(score, f"fault-{number}-{twin}")
        over_at = time.monotonic() + chance.uniform(0, MAX_GAP_SECONDS)
        while time.monotonic() < over_at:
            with suppress(Unreachable):
                crew.work()
            time.sleep(0.05)  # the pace of people, until a drawn moment of the next kill
        what = chance.choice(KILLED)
        killed[what] += 1
        if what == EVERYTHING:
            crew.deaths.append(datetime.now(UTC))
            stack.kill_everything()
            stack.start()
            continue
        for process in stack.processes():
            with suppress(psutil.Error):
                if any(KINDS[what] in part for part in process.cmdline()):
                    process.kill()
    crew.work_until(0, within=120 + KILLS)
    figures.say(f"killed: {dict(killed)}")
    wrong, _ = crew.judge(f"random kills of the whole application, seed {SEED}", kills=KILLS)
    assert wrong == []


# Seven faults at once, one of which is that of three workers two have a wrong clock

RUNS = count("R3", short=80, long=20_000)
BATCH, FEW = 40, 10  # runs: started in one go, and open when the faults stop
PAUSE = count("R3_PAUSE", short=8, long=12)  # seconds between two faults, at most
HOURS = (1, -1)  # by which the clocks of two more workers are wrong


def test_seven_faults_at_once_lose_and_repeat_no_run(stack: Stack, crew: Crew) -> None:
    over, done = Event(), Counter[str]()
    with ExitStack() as more:
        for hours in HOURS:
            late = {flows.HOURS: str(hours)}
            more.enter_context(processes.another(stack, "worker", f"clock{hours:+d}", **late))
        faults = _faults(stack, over)
        harming = Thread(target=_harm, args=(faults, over, done))
        harming.start()
        try:
            for number in range(RUNS):
                crew.start(errands(), f"soak-{number}")
                if number % BATCH == BATCH - 1:
                    crew.work_until(BATCH, within=300)
            crew.work_until(FEW, within=180 + RUNS)
        finally:
            over.set()
            harming.join()
        crew.work_until(0, within=180 + RUNS)
        wrong, _ = crew.judge(f"soak, seed {SEED}", kills=done.total())
    figures.say(f"faults: {dict(done)}, {len(HOURS)} workers whose clock is wrong")
    assert wrong == []
    assert set(done) == set(faults) or done.total() < len(faults)


def _harm(faults: dict[str, Callable[[], object]], over: Event, done: Counter[str]) -> None:
    """Each kind once in every round, in any order; one that finds nothing to harm comes again later in it."""
    chance = random.Random(SEED)
    left: list[str] = []
    while not over.wait(chance.uniform(0, PAUSE)):
        left = left or chance.sample(list(faults), len(faults))
        name = left.pop()
        try:
            faults[name]()
            done[name] += 1
        except (psutil.Error, psycopg.Error, redis.RedisError, LookupError):
            left.insert(0, name)


def _faults(stack: Stack, over: Event) -> dict[str, Callable[[], object]]:
    def worker() -> psutil.Process:
        """The stack's own, which is started again when it dies. Raises LookupError if there is none now."""
        found = stack.named("resumed,runs")
        own = [one for one in found if flows.HOURS not in one.environ()]
        return own[0]

    def kill_broker() -> None:
        processes.of(stack, "broker").process.kill()

    def empty_broker() -> None:
        with redis.Redis.from_url(worker().environ()["REDIS_URL"], socket_timeout=1) as broker:
            broker.flushall()

    def stop_worker() -> None:
        stopped = worker()
        stopped.suspend()
        over.wait(LEASE * 1.5)
        stopped.resume()

    def cut_connections() -> None:
        with psycopg.connect(stack.superuser_url, connect_timeout=2) as one:
            one.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )

    return {
        "Postgres restarted": lambda: stack.named("postgres")[0].send_signal(signal.SIGQUIT),
        "broker killed": kill_broker,
        "broker emptied": empty_broker,
        "worker stopped": stop_worker,
        "worker killed": lambda: worker().kill(),
        "connections cut": cut_connections,
    }


# Outages of Postgres

RESTARTS = count("R6", short=2, long=200)
SECONDS = count("R6_SECONDS", short=4, long=60)
WRITES = count("R6_WRITES", short=24, long=50)


def test_restarts_of_postgres_lose_no_acknowledged_decision(stack: Stack, crew: Crew) -> None:
    over = Event()

    def review() -> None:
        while not over.wait(0.02):
            with suppress(Unreachable):
                crew.review()

    reviewing = Thread(target=review)
    reviewing.start()
    try:
        for number in range(RESTARTS):
            for twin in range(3):
                crew.start(errands(), f"restart-{number}-{twin}")
            enough = len(crew.decided) + 2
            until(lambda: len(crew.decided) >= enough or None, "two more decisions")  # noqa: B023
            stack.named("postgres")[0].send_signal(signal.SIGQUIT)  # an immediate shutdown
    finally:
        over.set()
        reviewing.join()
    crew.work_until(0, within=120 + RESTARTS)
    wrong, _ = crew.judge("immediate restarts of Postgres", kills=RESTARTS)
    paths = [f"/api/v1/approvals/{one}" for one in crew.decided]
    found = [stack.ask("bea", "GET", path)[1]["status"] for path in paths]
    lost = sum(status != "approved" for status in found)
    figures.say(f"{len(found)} decisions were acknowledged, {lost} of them lost")
    assert (wrong, lost) == ([], 0)
    assert len(crew.decided) >= RESTARTS


def test_an_outage_of_postgres_puts_no_finished_write_in_doubt(stack: Stack, crew: Crew) -> None:
    with processes.another(stack, "worker", "second"):
        for number in range(WRITES):
            crew.start(labours(), f"labour-{number}")
        until(lambda: crew.effects() == WRITES or None, "every write to be under way", 120)
        launcher = psutil.Process(stack.pid)
        launcher.suspend()  # or it would start Postgres again
        stack.named("postgres")[0].send_signal(signal.SIGQUIT)
        gone_at = time.monotonic()
        crew.mark("enough")  # they end while no worker can record it
        Event().wait(SECONDS)
        launcher.resume()
        gone = time.monotonic() - gone_at
        crew.work_until(0, within=180)
        wrong, in_doubt = crew.judge("an outage of Postgres", kills=1)
    figures.say(f"Postgres was gone for {gone:.0f} s with {WRITES} writes under way")
    assert (wrong, in_doubt) == ([], 0)

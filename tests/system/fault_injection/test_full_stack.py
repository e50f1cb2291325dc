"""kill -9 of a part of the whole application, or of all of it, at random moments while runs move.

FAULTS_R2 says how many, FAULTS_SEED which ones, and FAULTS_R2_KINDS of what, with commas between: of everything there
is, or of `worker,web,sweeper` alone, beside a Postgres and a broker that live.
"""

import os
import random
import time
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest

from config.local.http_client import Unreachable
from tests.support.scripted_agents.scores import crowd, effects, transactions
from tests.support.stack import Stack
from tests.system.fault_injection.harness import figures
from tests.system.fault_injection.harness.counts import count
from tests.system.fault_injection.harness.crew import Crew, stack_of

pytestmark = [pytest.mark.faults, pytest.mark.e2e]

KILLS = count("R2", short=20, long=1000)
SEED = int(os.environ.get("FAULTS_SEED", "1"))
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


def test_random_crashes_lose_and_repeat_nothing(sandbox: Path) -> None:
    chance = random.Random(SEED)
    stack, book = stack_of(sandbox, "faults")
    began_at = time.monotonic()
    killed: Counter[str] = Counter()
    with stack:
        crew = Crew(stack, book)
        for number in range(KILLS):
            for twin in range(2):
                score = chance.choice((crowd, effects, transactions))()
                crew.start(score, f"fault-{number}-{twin}")
            _work(crew, chance.uniform(0, MAX_GAP_SECONDS))
            what = chance.choice(KILLED)
            killed[what] += 1
            if what == EVERYTHING:
                crew.deaths.append(datetime.now(UTC))
            _kill(stack, what)
            if killed.total() % 50 == 0:
                took = time.monotonic() - began_at
                figures.say(f"{killed.total()} kills, {crew.open} runs open, {took:.0f} s")
        crew.work_until(0, within=120 + KILLS)
        figures.say(f"killed: {dict(killed)}")
        what = f"random kills of the whole application, seed {SEED}"
        wrong, _ = crew.judge(what, kills=KILLS)
    assert wrong == []


def _work(crew: Crew, seconds: float) -> None:
    until_when = time.monotonic() + seconds
    while time.monotonic() < until_when:
        with suppress(Unreachable):
            crew.work()
        time.sleep(0.05)


def _kill(stack: Stack, what: str) -> None:
    if what == EVERYTHING:
        stack.kill_everything()
        stack.start()
        return
    for process in stack.processes():
        with suppress(psutil.Error):
            if any(KINDS[what] in part for part in process.cmdline()):
                process.kill()

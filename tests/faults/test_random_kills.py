"""kill -9 at random moments, in a process that advances runs from fork to death without any broker.

FAULTS_R1 says how many, FAULTS_SEED which ones.
"""

import os
import random
import time
from uuid import UUID

import pytest

from runtime.models import Run
from tests.faults import figures
from tests.faults.conftest import Switchboard
from tests.faults.counts import count
from tests.faults.office import ENDS, Office, doubts, problems, stuck
from tests.faults.processes import Worker, Zygote
from tests.faults.scores import Score, crowd, effects, transactions, waits

pytestmark = pytest.mark.faults

KILLS = count("R1", short=200, long=10_000)
SEED = int(os.environ.get("FAULTS_SEED", "1"))
UNDER_WAY = 40  # runs at a time: enough that somebody is always in the middle of something
LONGEST = 0.4  # seconds from being ready to death


def test_random_deaths_lose_nothing_and_repeat_nothing(
    zygote: Zygote, office: Office, switchboard: Switchboard
) -> None:
    chance = random.Random(SEED)
    switchboard.choose(15)  # where nobody listens
    began_at = time.monotonic()
    runs: dict[UUID, Score] = {}
    living: set[UUID] = set()
    held: set[tuple[UUID, int]] = set()
    hits = 0
    for _ in range(KILLS):
        while len(living) < UNDER_WAY:
            score = chance.choice((crowd, effects, transactions, waits))()
            run = office.start(score)
            runs[run] = score
            living.add(run)
        worker = zygote.loop(ABEYANCE_FAULTS_LEASE="1")
        _wait_until_ready(worker)
        _let_live(worker, chance.uniform(0, LONGEST))
        worker.kill()
        orphans = set(Run.objects.exclude(owner=None).values_list("id", "epoch")) - held
        hits += bool(orphans)
        held |= orphans
        living = {run for run in living if office.tend(run, runs[run]) not in ENDS}
        assert stuck() == []
    _finish(zygote, office, runs, living)

    figures.say(f"{hits} of {KILLS} kills hit {len(held)} runs that were being advanced")
    wrong = [f"{problem} in {run}" for run in runs for problem in _problems(office, run, runs[run])]
    figures.summary(
        f"random kills of a loop, seed {SEED}",
        runs=len(runs),
        kills=KILLS,
        wrong=wrong,
        doubts=sum(doubts(run) for run in runs),
        seconds=time.monotonic() - began_at,
    )
    assert wrong == []
    assert hits > KILLS / 4


def _problems(office: Office, run: UUID, score: Score) -> list[str]:
    return problems(office.ledger, run, score)


def _wait_until_ready(worker: Worker) -> None:
    deadline = time.monotonic() + 30
    while "looping" not in worker.log.read_text():
        assert not worker.died.is_set(), worker.log.read_text()
        assert time.monotonic() < deadline
        time.sleep(0.005)


def _let_live(worker: Worker, seconds: float) -> None:
    assert not worker.died.wait(seconds), worker.log.read_text()


def _finish(zygote: Zygote, office: Office, runs: dict[UUID, Score], living: set[UUID]) -> None:
    """Let a worker that nobody kills do the rest."""
    worker = zygote.loop(ABEYANCE_FAULTS_LEASE="1")
    deadline = time.monotonic() + 60
    while living:
        living = {run for run in living if office.tend(run, runs[run]) not in ENDS}
        assert time.monotonic() < deadline, f"{living}: {worker.log.read_text()[-3000:]}"
        time.sleep(0.05)

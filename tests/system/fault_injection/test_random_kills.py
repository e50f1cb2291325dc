"""kill -9 at random moments, in processes that advance runs from fork to death without any broker.

FAULTS_R1 says how many, FAULTS_SEED which ones.
"""

import os
import random
import time
from uuid import UUID

import pytest

from approvals.models import Request
from runtime.models import LostLease, Run
from tests.support import ledger
from tests.support.scripted_agents.scores import Score, crowd, effects, tower, transactions, waits
from tests.system.fault_injection.conftest import MakeLoop
from tests.system.fault_injection.harness import figures
from tests.system.fault_injection.harness.counts import count
from tests.system.fault_injection.harness.loop import Loop
from tests.system.fault_injection.harness.office import (
    ENDS,
    Office,
    in_doubt_gates,
    problems,
    stuck,
)

pytestmark = pytest.mark.faults

KILLS = count("R1", short=200, long=10_000)
SEED = int(os.environ.get("FAULTS_SEED", "1"))
LOOPS = 3  # processes at work at a time, one of which dies next
UNDER_WAY = 60  # runs at a time: enough that a worker always runs a call
MAX_GAP_SECONDS = 0.2  # between two deaths, besides those that the next process takes to be ready
TENDED = 1  # runs that people look after between two deaths: more would take longer than the deaths


def test_random_deaths_lose_nothing_and_repeat_nothing(loops: MakeLoop, office: Office) -> None:
    chance = random.Random(SEED)
    began_at = time.monotonic()
    runs: dict[UUID, Score] = {}
    living: set[UUID] = set()
    working: list[Loop] = []
    for _ in range(KILLS):
        while len(living) < UNDER_WAY:
            score = chance.choice((crowd, effects, transactions, waits, tower))()
            run = office.start(score)
            runs[run] = score
            living.add(run)
        while len(working) < LOOPS:
            working.append(loops())
        victim = working.pop(chance.randrange(LOOPS))
        assert victim.is_alive(chance.uniform(0, MAX_GAP_SECONDS)), victim.log.read_text()
        victim.kill()
        living = _tended(office, runs, living, TENDED)
        assert stuck() == []
    for loop in working:
        loop.kill()
    survivor = loops()
    deadline = time.monotonic() + 60
    while living:
        living = _tended(office, runs, living)
        assert time.monotonic() < deadline, f"{living}: {survivor.log.read_text()[-3000:]}"
        time.sleep(0.05)

    lost = LostLease.objects.count()
    figures.say(f"{KILLS} kills took {lost} runs out of the hands of who advanced them")
    lines = ledger.by_run(office.ledger)
    wrong = [
        f"{problem} in {run}"
        for run, score in runs.items()
        for problem in problems(lines.get(str(run), ()), run, score)
    ]
    figures.summary(
        f"random kills of a loop, seed {SEED}",
        runs=len(runs),
        kills=KILLS,
        wrong=wrong,
        in_doubt_gates=sum(in_doubt_gates(run) for run in runs),
        seconds=time.monotonic() - began_at,
    )
    assert wrong == []
    assert lost > KILLS / 4


def _tended(
    office: Office, runs: dict[UUID, Score], living: set[UUID], most: int | None = None
) -> set[UUID]:
    """Decide what waits for a person, longest first, in so many runs. Those that have not ended."""
    waiting = Request.objects.filter(status=Request.Status.PENDING, run__in=living)
    longest = waiting.order_by("id").values_list("run", flat=True)
    for run in list(dict.fromkeys(longest))[:most]:
        office.tend(run, runs[run])
    return living - set(
        Run.objects.filter(id__in=living, status__in=ENDS).values_list("id", flat=True)
    )

"""kill -9 of processes that advance runs without a broker.

Every commit kind and every effect kind at depths 0, 1 and 2 is a point at which a process may die.

First one process plays every score without being killed and records the points it passes, which must be exactly the
expected ones. Then a process dies for each kind, at the deepest of its points, with the first score that passes that;
with FAULTS_EVERY_SCORE=1 (as in `make faults`) at every point with every score that passes it. FAULTS_LANES is how many
processes may be dying at a time. After the last death one process ends all runs. FAULTS_R1 says how many processes are
killed at random moments, FAULTS_SEED which ones.
"""

import os
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest

from approvals.models import Approval
from runtime.models import LostLease, Run
from tests.support.scripted_agents import ledger, scores
from tests.support.scripted_agents.scores import Score, writes
from tests.system.fault_injection.conftest import MakeLoop
from tests.system.fault_injection.harness import figures, points
from tests.system.fault_injection.harness.counts import count
from tests.system.fault_injection.harness.loop import Loop
from tests.system.fault_injection.harness.office import (
    ENDS,
    Office,
    in_doubt_gates,
    problems,
    stuck,
    verified,
    writes_under_way,
)

pytestmark = pytest.mark.faults

EVERY_SCORE = bool(os.environ.get("FAULTS_EVERY_SCORE"))
LANES = int(os.environ.get("FAULTS_LANES", "3"))
LEASE = 3.0
WITHIN = 120.0


@dataclass(slots=True, kw_only=True)
class Death:
    """One death; `under_way` are the writes between intent and result at that moment."""

    point: str
    name: str
    score: Score
    run: UUID
    loop: Loop
    died: Path
    until: float
    under_way: int = 0

    def __str__(self) -> str:
        return f"{self.point} ({self.name})"


def test_a_crash_loses_and_repeats_nothing(loops: MakeLoop, office: Office, tmp_path: Path) -> None:
    began_at = time.monotonic()
    passed = _uninterrupted(loops, office, tmp_path / "passed")
    everything = set().union(*passed.values())
    assert points.registry() - everything == set(), "points that no run passes"
    assert everything - points.registry() == set(), "points missing in the list"

    deaths = list(_deaths(loops, office, tmp_path, list(_cases(passed))))
    survivor = loops(lease=LEASE)
    deadline = time.monotonic() + WITHIN + len(deaths)
    left = deaths
    while left := [one for one in left if office.tend(one.run, one.score) not in ENDS]:
        assert time.monotonic() < deadline, f"{left}: {survivor.log.read_text()[-3000:]}"

    lines = ledger.by_run(office.ledger)
    wrong: list[str] = []
    for one in deaths:
        found = problems(lines.get(str(one.run), ()), one.run, one.score)
        if (doubts := in_doubt_gates(one.run)) != one.under_way:
            found.append(f"{doubts} calls in doubt, but {one.under_way} writes were under way")
        wrong += [f"{problem} after {one}" for problem in found]
    tried, kills = {one.point for one in deaths}, len(deaths)
    doubts = sum(one.under_way for one in deaths)
    what = f"kill points: {len(tried)} points"
    figures.summary(what, wrong, began_at, runs=kills, kills=kills, in_doubt=doubts)
    assert tried >= (points.registry() if EVERY_SCORE else points.deepest())
    assert wrong == []
    doubtful = {one.point for one in deaths if one.under_way}
    assert doubtful <= set(filter(points.may_leave_doubt, points.registry()))


def _uninterrupted(loops: MakeLoop, office: Office, log: Path) -> dict[str, set[str]]:
    """The points that each score passes without a crash."""
    loop = loops(lease=LEASE, SIGNOFF_KILL_LOG=str(log))
    passed: dict[str, set[str]] = {}
    for name, make in scores.SCORES.items():
        score = make()
        run = office.start(score)
        deadline = time.monotonic() + 30
        while office.tend(run, score) not in ENDS:
            assert time.monotonic() < deadline, loop.log.read_text()[-3000:]
            time.sleep(0.02)  # between two looks at other processes; the deadline ends it
        assert problems(ledger.by_run(office.ledger)[str(run)], run, score) == []
        assert in_doubt_gates(run) == 0
        passed[name] = set(log.read_text().split())
        log.unlink()
    loop.kill()
    return passed


def _cases(passed: dict[str, set[str]]) -> Iterator[tuple[str, str]]:
    """Each kind with its first score. Transactional calls always count: they commit differently."""
    done: set[str] = set()
    for name, found in passed.items():
        wanted = found if EVERY_SCORE else (found & points.deepest()) - done
        if name == "effects":
            wanted |= {point for point in found if point.split(":")[1].startswith("Tool")}
        if name == "each item":
            wanted |= {point for point in found if point.endswith(points.OF_ITEMS)}
        yield from ((point, name) for point in sorted(wanted & points.registry()))
        done |= found


def _deaths(
    loops: MakeLoop, office: Office, folder: Path, cases: list[tuple[str, str]]
) -> Iterator[Death]:
    """A few at a time, each in a process for its run alone."""
    dying: list[Death] = []
    while cases or dying:
        while cases and len(dying) < LANES:
            dying.append(_victim(loops, office, folder, *cases.pop()))
        for one in list(dying):
            ended = office.tend(one.run, one.score) in ENDS
            if one.loop.is_alive(1.0 if ended else 0.02):
                assert not ended, f"{one} was not reached: {one.loop.log.read_text()[-3000:]}"
                assert time.monotonic() < one.until, one.loop.log.read_text()[-3000:]
                continue
            assert one.died.exists(), one.loop.log.read_text()
            one.under_way = len(writes_under_way(verified(one.run)))
            dying.remove(one)
            yield one


def _victim(loops: MakeLoop, office: Office, folder: Path, point: str, name: str) -> Death:
    score = scores.SCORES[name]()
    run = office.start(score)
    died = folder / f"{run}.died"
    armed = {"SIGNOFF_KILL_POINT": point, "SIGNOFF_KILL_ONCE": str(died)}
    loop = loops(lease=LEASE, only=run, **armed)
    until = time.monotonic() + WITHIN
    return Death(point=point, name=name, score=score, run=run, loop=loop, died=died, until=until)


# Random kills

KILLS = count("R1", short=24, long=10_000)
SEED = int(os.environ.get("FAULTS_SEED", "1"))
MIXED = (scores.crowd, scores.effects, scores.transactions, scores.waits, scores.tower)
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
            score = chance.choice(MIXED)()
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
        time.sleep(0.05)  # between two looks at other processes; the deadline ends it

    lost = LostLease.objects.count()
    figures.say(f"{KILLS} kills took {lost} runs out of the hands of who advanced them")
    lines = ledger.by_run(office.ledger)
    wrong = [
        f"{problem} in {run}"
        for run, score in runs.items()
        for problem in problems(lines.get(str(run), ()), run, score)
    ]
    what, doubts = f"random kills of a loop, seed {SEED}", sum(map(in_doubt_gates, runs))
    figures.summary(what, wrong, began_at, runs=len(runs), kills=KILLS, in_doubt=doubts)
    assert wrong == []
    assert lost > KILLS / 4


def _tended(
    office: Office, runs: dict[UUID, Score], living: set[UUID], most: int | None = None
) -> set[UUID]:
    """Decide what waits for a person, longest first, in so many runs. Those that have not ended."""
    waiting = Approval.objects.filter(status=Approval.Status.PENDING, run__in=living)
    longest = waiting.order_by("id").values_list("run", flat=True)
    for run in list(dict.fromkeys(longest))[:most]:
        office.tend(run, runs[run])
    return living - set(
        Run.objects.filter(id__in=living, status__in=ENDS).values_list("id", flat=True)
    )


# Slots


CALLS, SLOTS = 10, 4


def test_killing_four_slots_leaves_at_most_four_doubts(loops: MakeLoop, office: Office) -> None:
    score = writes(CALLS)
    run = office.start(score)
    loop = loops(slots=SLOTS, **{ledger.STAY: "1"})
    deadline = time.monotonic() + 30
    while len(ledger.read(office.ledger)) < SLOTS:
        assert time.monotonic() < deadline, loop.log.read_text()
        time.sleep(0.01)  # between two looks at the ledger; the deadline ends it
    loop.kill()
    begun = {effect.key for effect in ledger.read(office.ledger)}

    other = loops(slots=SLOTS)
    while office.tend(run, score) not in ENDS:
        assert time.monotonic() < deadline, other.log.read_text()
        time.sleep(0.02)  # between two looks at the run; the deadline ends it
    assert Run.objects.get(id=run).status == "completed"
    assert len(begun) == SLOTS
    assert in_doubt_gates(run) == SLOTS  # each of them is asked about, and none of the other six
    assert problems(ledger.read(office.ledger), run, score) == []

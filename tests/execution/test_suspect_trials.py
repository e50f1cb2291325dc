"""Runs that may have ended their workers: how they are found, and how they are tried."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.execution import crash_loops
from runtime.execution.crash_loops import SuspectTrials
from runtime.models import KillSwitch, Run, WorkerProcess
from runtime.store.leases import ALONE, RunClaim, Suspect
from runtime.store.pool import Connection
from runtime.upkeep import due_runs
from tests.support.engine import MakeBench, Rig, claim
from tests.support.fake_ports import say, turns
from tests.support.people import until

ANSWER = "import os, sys\nfor line in sys.stdin: os.write(int(sys.argv[2]), b'.')"
HOLD = "import sys\nfor line in sys.stdin: pass"
DIE = "import os, sys\nsys.stdin.readline()\nos.abort()"
FAIL = "raise SystemExit(1)"

Start = Callable[..., SuspectTrials]


@pytest.fixture
def desk(rig: MakeBench) -> Rig:
    return rig({"a": turns(say("done"))})


@pytest.fixture
def start() -> Iterator[Start]:
    """Make trials of a program. Its processes end with the test."""
    all_trials: list[SuspectTrials] = []

    def make(program: str, most: int = 4) -> SuspectTrials:
        all_trials.append(SuspectTrials([sys.executable, "-c", program], most))
        return all_trials[-1]

    yield make
    for trials in all_trials:
        trials.stop()


def suspect(desk: Rig, number: int) -> list[UUID]:
    runs = [desk.start("a") for _ in range(number)]
    for run in runs:
        Run.objects.filter(id=run).update(isolated=True, due_at="2020-01-01T00:00Z")
    return runs


def sizes(trials: SuspectTrials) -> list[int]:
    return [len(trial.runs) for trial in trials._trials]


def test_suspected_runs_are_shared_by_the_processes(
    desk: Rig, start: Start, own: Connection
) -> None:
    runs = suspect(desk, 9)
    trials = start(HOLD)
    trials.look(own)
    assert sizes(trials) == [3, 2, 2, 2]
    assert sorted(run for trial in trials._trials for run in trial.runs) == sorted(runs)


@pytest.mark.parametrize(
    "change",
    [
        {"owner": uuid4()},
        {"status": "quarantined"},
        {"due_at": "2999-01-01T00:00Z"},
        {"isolated": False},
        {"agent": "stopped"},
    ],
    ids=["tried", "quarantined", "not due", "ordinary", "stopped"],
)
def test_other_runs_are_not_tried(
    desk: Rig, start: Start, own: Connection, change: dict[str, object]
) -> None:
    KillSwitch.objects.create(agent="stopped", stopped_by="ada", reason="")
    (run,) = suspect(desk, 1)
    Run.objects.filter(id=run).update(**change)
    trials = start(HOLD)
    trials.look(own)
    assert trials._trials == []


def test_processes_with_slow_calls_hold_no_other_group_up(
    desk: Rig, start: Start, own: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crash_loops, "SLOW_SECONDS", 0.0)
    suspect(desk, 5)
    trials = start(HOLD, most=1)
    Run.objects.update(losses=ALONE)
    trials.look(own)
    assert sizes(trials) == [1] * crash_loops.SLOW, "but there is a limit"


def test_the_runs_of_a_process_that_died_are_lost_before_its_lease_is_over(
    desk: Rig, start: Start, own: Connection
) -> None:
    (run,) = suspect(desk, 1)
    trials = start(DIE)
    trials.look(own)
    (trial,) = trials._trials
    WorkerProcess.objects.create(
        id=trial.worker, host="here", process=1, lease_until="2999-01-01T00:00Z"
    )
    assert claim(own, run, worker=trial.worker, isolated=True) is not None
    trial.process.wait(60)
    due_runs.dispatch_window(own)
    assert Run.objects.get(id=run).owner is not None
    trials.look(own)
    due_runs.dispatch_window(own)
    row = Run.objects.get(id=run)
    assert (row.owner, row.losses) == (None, ALONE + 1), "it was alone"
    trials.look(own)
    assert [trial.runs for trial in trials._trials] == [(run,)], "it is due at once"


def test_a_process_that_answers_gets_the_next_group_and_ends_when_none_waits(
    desk: Rig, start: Start, own: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    suspect(desk, 1)
    trials = start(ANSWER, most=1)
    trials.look(own)
    Run.objects.update(isolated=False)
    (trial,) = trials._trials

    def answered() -> bool | None:
        trial.look()
        return not trial.runs or None

    until(answered, "the answer")
    suspect(desk, 1)
    trials.look(own)
    assert trials._trials == [trial]
    assert trial.runs
    Run.objects.update(isolated=False)
    until(answered, "the next answer")
    monkeypatch.setattr(crash_loops, "IDLE_SECONDS", 0.0)
    trials.look(own)
    assert trial.process.wait(60) == 0
    trials.look(own)
    assert trials._trials == []


def test_a_process_that_cannot_start_is_not_started_again_at_once(
    desk: Rig, start: Start, own: Connection
) -> None:
    suspect(desk, 1)
    trials = start(FAIL)
    trials.look(own)
    trials._trials[0].process.wait(60)
    trials.look(own)
    assert trials._trials == []


def test_a_process_that_died_while_it_was_idle_gets_no_group(
    desk: Rig, start: Start, own: Connection
) -> None:
    trials = start(HOLD, most=1)
    suspect(desk, 1)
    trials.look(own)
    (trial,) = trials._trials
    WorkerProcess.objects.create(id=trial.worker, host="here", process=1)
    trial.process.kill()
    trial.process.wait(60)
    trials.look(own)
    (other,) = trials._trials
    assert other.worker != trial.worker


# How they are found


PROCESSES = 4
POISON_LOSSES = 3  # the setting's default
FULL = 256  # runs of a worker
LONG = 60.0
AT = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(kw_only=True, eq=False)
class SimulatedRun:
    """A run with one effect. If it is deadly, it ends its process; `unlucky` ones never end their effect before."""

    deadly: bool = False
    unlucky: bool = True
    losses: int = 0
    suspected: bool = False
    ended: bool = False
    quarantined: bool = False
    lost_by: list[int] = field(default_factory=list)  # the number of runs in each process it lost
    id: UUID = field(default_factory=uuid4)

    @property
    def claim(self) -> RunClaim:
        return RunClaim(
            run=self.id,
            epoch=1,
            owner=self.id,
            position=1,
            head="",
            continuation_position=0,
            previous="running",
            at=AT,
            lost_leases=self.losses,
            isolated=self.suspected,
        )


def try_together(runs: Sequence[SimulatedRun]) -> bool:
    """Let one process advance these runs. Return whether it died."""
    died = any(run.deadly for run in runs)
    for run in runs:
        if died and (run.deadly or run.unlucky):
            run.losses += 1
            run.lost_by.append(len(runs))
        else:
            run.ended, run.losses, run.suspected = True, 0, False
    return died


def search(runs: Sequence[SimulatedRun]) -> tuple[int, int, int]:
    """Advance all runs to their end. Return the deaths of workers, of groups, and the rounds until all others end."""
    workers = groups = rounds = 0
    waiting: list[SimulatedRun] = []
    while not all(run.ended or run.quarantined for run in runs):
        rounds += any(not (run.ended or run.deadly) for run in runs)
        ordinary = [run for run in runs if not (run.ended or run.quarantined or run.suspected)]
        for run in [run for run in ordinary if crash_loops.needs_isolation(run.claim)]:
            run.suspected, run.losses = True, 0
            waiting.append(run)
            ordinary.remove(run)
        workers += bool(ordinary) and try_together(ordinary)
        for run in [run for run in waiting if crash_loops.quarantine_reason(run.claim)]:
            run.quarantined = True
            waiting.remove(run)
        tried = choose_groups(waiting)
        for group in tried:
            groups += try_together(group)
            waiting += [run for run in group if not run.ended]
    return workers, groups, rounds


def choose_groups(waiting: list[SimulatedRun]) -> list[list[SimulatedRun]]:
    """Take the groups of one round from those that wait, as the `isolated` process does."""
    tried: list[list[SimulatedRun]] = []
    for free in range(PROCESSES, 0, -1):
        suspects = [Suspect(run=run.id, losses=run.losses, waits=LONG) for run in waiting]
        ids = {suspect.run for suspect in crash_loops.select_next_group(suspects, free)}
        group = [run for run in waiting if run.id in ids]
        if not group:
            break
        if len(group) == 1:
            group[0].losses = max(group[0].losses, ALONE)
        waiting[:] = [run for run in waiting if run not in group]
        tried.append(group)
    return tried


CROWDS = st.lists(st.tuples(st.just(False), st.booleans()), max_size=FULL - 6)
DEADLY = st.lists(st.tuples(st.just(True), st.just(True)), min_size=1, max_size=6)


@given(runs=st.tuples(CROWDS, DEADLY).flatmap(lambda two: st.permutations(two[0] + two[1])))
def test_every_deadly_run_is_found_and_takes_few_processes_with_it(
    runs: Sequence[tuple[bool, bool]],
) -> None:
    crowd = [SimulatedRun(deadly=deadly, unlucky=unlucky) for deadly, unlucky in runs]
    workers, groups, _ = search(crowd)
    deadly = sum(run.deadly for run in crowd)
    assert [run.quarantined for run in crowd] == [run.deadly for run in crowd]
    assert workers == 2
    assert groups <= deadly * (ALONE + POISON_LOSSES)
    for run in crowd:
        alone = [size for size in run.lost_by[crash_loops.IN_A_ROW :] if size == 1]
        assert len(alone) == (POISON_LOSSES if run.deadly else 0)
        assert run.deadly or len(run.lost_by) <= crash_loops.IN_A_ROW + ALONE


def test_a_deadly_run_of_a_full_worker_holds_the_others_up_for_seven_rounds_at_most() -> None:
    """Two workers, 4 groups of 64 at once, 8 of 8 in two rounds, and 8 runs alone in two rounds."""
    for index in range(0, FULL, 17):
        crowd = [SimulatedRun(deadly=number == index) for number in range(FULL)]
        workers, groups, rounds = search(crowd)
        assert (workers, groups) == (2, ALONE + POISON_LOSSES)
        assert rounds <= 7


def test_only_processes_that_a_run_lost_alone_quarantine_it() -> None:
    """So an operator must kill five workers of a run in a row, seven of one among many, before it is quarantined."""
    run = SimulatedRun(deadly=True)
    search([run])
    assert len(run.lost_by) == crash_loops.IN_A_ROW + POISON_LOSSES
    crowd = [SimulatedRun(deadly=True) for _ in range(FULL)]  # as if all processes were killed
    search(crowd)
    assert {len(run.lost_by) for run in crowd} == {crash_loops.IN_A_ROW + ALONE + POISON_LOSSES}


@pytest.mark.parametrize(
    ("waits", "tried"), [([0.5], 0), ([1.0], 1), ([2.9, 0.5], 0), ([3.0, 0.5], 2), ([2.0, 1.0], 2)]
)
def test_suspects_are_tried_once_no_more_come(waits: Sequence[float], tried: int) -> None:
    """Else the first ones of many would take all processes, in groups of two or three."""
    suspects = [Suspect(run=uuid4(), losses=0, waits=seconds) for seconds in waits]
    assert len(crash_loops.select_next_group(suspects, 1)) == tried
    lost = [Suspect(run=uuid4(), losses=1, waits=seconds) for seconds in waits]
    assert len(crash_loops.select_next_group(lost, 1)) == len(waits)


def test_runs_that_lost_as_many_groups_are_tried_together() -> None:
    suspects = [Suspect(run=uuid4(), losses=losses, waits=LONG) for losses in (1, 0, 1, 2)]
    assert crash_loops.select_next_group(suspects, 1) == [suspects[0], suspects[2]]

"""The processes that try suspected runs, with small programs in their place."""

import sys
from collections.abc import Callable, Iterator
from uuid import UUID, uuid4

import pytest

from runtime.execution import crash_loops
from runtime.execution.crash_loops import SuspectTrials
from runtime.models import KillSwitch, Run, WorkerProcess
from runtime.store import pool
from runtime.store.leases import ALONE
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


@pytest.fixture
def own() -> Iterator[Connection]:
    with pool.open_own() as connection:
        yield connection


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

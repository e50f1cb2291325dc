"""The search for the runs that kill their workers, without workers: rounds in which each process dies or does not."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.execution import crash_loops
from runtime.store.leases import ALONE, RunClaim, Suspect

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
        for run in [run for run in ordinary if crash_loops.should_isolate(run.claim)]:
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
        ids = {suspect.run for suspect in crash_loops.next_group(suspects, free)}
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
    assert len(crash_loops.next_group(suspects, 1)) == tried
    lost = [Suspect(run=uuid4(), losses=1, waits=seconds) for seconds in waits]
    assert len(crash_loops.next_group(lost, 1)) == len(waits)


def test_runs_that_lost_as_many_groups_are_tried_together() -> None:
    suspects = [Suspect(run=uuid4(), losses=losses, waits=LONG) for losses in (1, 0, 1, 2)]
    assert crash_loops.next_group(suspects, 1) == [suspects[0], suspects[2]]

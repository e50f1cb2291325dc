"""One death at one point: a worker that ends there, a run that makes it, and others that pick the run up."""

import os
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from django.db import connections

from runtime.models import Run
from runtime.store import pool
from runtime.upkeep import due_runs
from tests.support.ledger import Effect
from tests.support.scripted_agents.scores import SCORES, Score
from tests.system.fault_injection.conftest import Switchboard
from tests.system.fault_injection.harness.office import (
    ENDS,
    Office,
    in_doubt_gates,
    problems,
    stuck,
    verified,
    writes_under_way,
)
from tests.system.fault_injection.harness.processes import Worker, Zygote

LANES = int(os.environ.get("FAULTS_LANES", "3"))
TRIES = 5  # on a busy machine a victim may lose its lease before it gets to its point
TIMEOUT_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A point, and the score that passes it."""

    point: str
    score: str


@dataclass(slots=True, kw_only=True)
class Death:
    """One death of a worker; `under_way` are the writes between intent and result at that moment."""

    case: Case
    run: UUID
    score: Score
    died_at: float
    position: int
    under_way: int
    recovered: float | None = None
    finished: float | None = None

    def wrong(self, lines: Mapping[str, Sequence[Effect]]) -> list[str]:
        """Everything that is not as promised; `lines` are those of the ledger by run."""
        found = problems(lines.get(str(self.run), ()), self.run, self.score)
        if (count := in_doubt_gates(self.run)) != self.under_way:
            found.append(f"{count} calls in doubt, but {self.under_way} writes were under way")
        return found


class Experiment:
    """Kills in a few lanes at once, each with brokers of its own, while one more worker recovers."""

    def __init__(self, zygote: Zygote, office: Office, board: Switchboard, folder: Path) -> None:
        self._zygote = zygote
        self._office = office
        self._board = board
        self._folder = folder
        self._swept_at = 0.0
        self.deaths: list[Death] = []

    def run(self, cases: Iterable[Case]) -> None:
        """Each case once; returns when every run has come to its end."""
        for worker in (self._zygote.worker(), self._zygote.isolated()):
            worker.wait_until_ready()
        todo = deque(cases)
        with ThreadPoolExecutor(LANES) as pool:
            lanes = [pool.submit(self._lane, number, todo) for number in range(LANES)]
            try:
                while not all(lane.done() for lane in lanes):
                    self._look_after()
            finally:
                todo.clear()
        for lane in lanes:
            lane.result()
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while any(death.finished is None for death in self.deaths):
            self._look_after()
            late = [death for death in self.deaths if death.finished is None]
            assert time.monotonic() < deadline, f"not finished: {late}"

    def _look_after(self) -> None:
        """Let Bea decide the requests of the dead workers' runs, and send hints for due runs."""
        if time.monotonic() - self._swept_at > 0.5:
            self._swept_at = time.monotonic()
            with pool.pooled() as connection:
                due_runs.dispatch_window(connection)
        for death in list(self.deaths):
            if death.finished is None:
                self._follow(death)
        assert stuck() == []
        time.sleep(0.05)

    def _follow(self, death: Death) -> None:
        status = self._office.tend(death.run, death.score)
        since = time.monotonic() - death.died_at
        if death.recovered is None:
            position = Run.objects.values_list("position", flat=True).get(id=death.run)
            if position > death.position or status in ENDS:
                death.recovered = since
        if status in ENDS:
            death.finished = since

    def _lane(self, number: int, todo: deque[Case]) -> None:
        """One death after the other; the next victim starts while this one works."""
        brokers = (2 * number + 1, 2 * number + 2)
        try:
            case = _next(todo)
            worker = None if case is None else self._victim(case, brokers[0])
            turn = 0
            while case is not None and worker is not None:
                following = _next(todo)
                turn += 1
                successor = None
                if following is not None:
                    successor = self._victim(following, brokers[turn % 2])
                self._die(case, worker, brokers[(turn - 1) % 2])
                case, worker = following, successor
        finally:
            connections.close_all()

    def _victim(self, case: Case, broker: int) -> Worker:
        self._board.clear(broker)
        name = f"{case.point}-{case.score}".replace(":", "-").replace(" ", "-")
        return self._zygote.worker(
            broker=self._board.address(broker),
            ABEYANCE_KILL_POINT=case.point,
            ABEYANCE_KILL_ONCE=str(self._folder / name),
        )

    def _die(self, case: Case, worker: Worker, broker: int) -> None:
        worker.wait_until_ready()
        self._board.choose(broker)
        for _ in range(TRIES):
            score = SCORES[case.score]()
            run = self._office.start(score)
            if self._until_death(run, score, worker):
                assert worker.by == 9, worker.log.read_text()
                self._board.release(run)
                self.deaths.append(_note(case, run, score))
                return
        raise AssertionError(f"{case} was not reached: {worker.log.read_text()[-3000:]}")

    def _until_death(self, run: UUID, score: Score, worker: Worker) -> bool:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not worker.died.wait(0.02):
            if self._office.tend(run, score) in ENDS and not worker.died.wait(0.5):
                return False
            assert time.monotonic() < deadline, worker.log.read_text()[-3000:]
        return True


def _next(todo: deque[Case]) -> Case | None:
    try:
        return todo.popleft()
    except IndexError:
        return None


def _note(case: Case, run: UUID, score: Score) -> Death:
    died_at = time.monotonic()
    now = verified(run)
    return Death(
        case=case,
        run=run,
        score=score,
        died_at=died_at,
        position=now.position,
        under_way=len(writes_under_way(now)),
    )

"""Every commit kind and every effect kind at depths 0, 1 and 2 is a point at which a real Celery worker dies once.

First one worker plays every score without being killed and records the points it passes, which must be exactly the
expected ones. Then a worker dies at each point. A point is tried with the first score that passes it; with
FAULTS_EVERY_SCORE=1 (as in `make faults`) with every score that does. FAULTS_LANES is how many workers may be dying
at a time.
"""

import os
import time
from pathlib import Path

import pytest

from tests.support import ledger
from tests.support.scripted_agents.scores import SCORES
from tests.system.fault_injection.conftest import Switchboard
from tests.system.fault_injection.harness import figures, points
from tests.system.fault_injection.harness.experiment import Case, Experiment
from tests.system.fault_injection.harness.office import ENDS, Office, in_doubt_gates
from tests.system.fault_injection.harness.processes import Zygote

pytestmark = pytest.mark.faults

EVERY_SCORE = bool(os.environ.get("FAULTS_EVERY_SCORE"))


def test_a_crash_at_any_point_loses_and_repeats_nothing(
    zygote: Zygote, office: Office, switchboard: Switchboard, tmp_path: Path
) -> None:
    began_at = time.monotonic()
    passed = _uninterrupted(zygote, office, tmp_path)
    everything = set().union(*passed.values())
    assert points.registry() - everything == set(), "points that no run passes"
    assert everything - points.registry() == set(), "points missing in the list"

    experiment = Experiment(zygote, office, switchboard, tmp_path)
    experiment.run(_cases(passed))

    lines = ledger.by_run(office.ledger)
    wrong = {
        f"{death.case.point} ({death.case.score})": found
        for death in experiment.deaths
        if (found := death.wrong(lines))
    }
    figures.of_points(experiment.deaths, wrong, time.monotonic() - began_at)
    assert {death.case.point for death in experiment.deaths} == points.registry()
    assert wrong == {}
    assert {death.case.point for death in experiment.deaths if death.under_way} <= {
        point for point in points.registry() if points.may_leave_doubt(point)
    }


def _uninterrupted(zygote: Zygote, office: Office, folder: Path) -> dict[str, set[str]]:
    """The points that each score passes without a crash."""
    log = folder / "passed"
    zygote.sweeper()
    worker = zygote.worker(ABEYANCE_KILL_LOG=str(log))
    worker.wait_until_ready()
    passed: dict[str, set[str]] = {}
    for name, make in SCORES.items():
        score = make()
        run = office.start(score)
        deadline = time.monotonic() + 30
        while office.tend(run, score) not in ENDS:
            assert time.monotonic() < deadline, worker.log.read_text()[-3000:]
            time.sleep(0.02)
        assert office.problems(run, score) == []
        assert in_doubt_gates(run) == 0
        passed[name] = set(log.read_text().split())
        log.unlink()
    zygote.stop_children()
    return passed


def _cases(passed: dict[str, set[str]]) -> list[Case]:
    """List each point with its first score. Transactional calls always count: they commit differently."""
    cases: list[Case] = []
    done: set[str] = set()
    for name, found in passed.items():
        wanted = found if EVERY_SCORE else found - done
        if name == "effects":
            wanted |= {point for point in found if point.split(":")[1].startswith("Tool")}
        cases += [Case(point=point, score=name) for point in sorted(wanted & points.registry())]
        done |= found
    return cases

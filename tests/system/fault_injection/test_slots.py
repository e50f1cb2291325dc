"""kill -9 of a worker in the middle of more writes than it has slots."""

import time

import pytest

from runtime.models import Run
from tests.support.scripted_agents import ledger
from tests.support.scripted_agents.scores import writes
from tests.system.fault_injection.conftest import MakeLoop
from tests.system.fault_injection.harness.office import ENDS, Office, in_doubt_gates, problems

pytestmark = pytest.mark.faults

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

"""A run that kills its worker, beside fifty that do not, with real processes."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.people import Office, until
from tests.support.scripted_agents import crash_loops
from tests.support.stack import Stack

pytestmark = pytest.mark.e2e

OTHERS = 50
DEATHS_WITHIN = 180.0  # three workers die and are started again


def test_a_crashing_run_beside_50_others_is_quarantined_alone(sandbox: Path) -> None:
    stack = Stack(
        sandbox / "crash-loop",
        ABEYANCE_LEASE_SECONDS="2",
        ABEYANCE_POISON_LOSSES="2",
        ABEYANCE_AGENTS=f"agents.flows.hr,{crash_loops.__name__}",
    )
    with stack:
        office = Office(stack)
        others = [office.begin("poison_quiet", name="quiet") for _ in range(OTHERS // 2)]
        deadly = office.begin("poison_deadly", name="deadly")
        others += [office.begin("poison_quiet", name="quiet") for _ in range(OTHERS // 2)]

        def stopped() -> dict[str, Any] | None:
            found = office.run(deadly)
            return found if found["status"] == "quarantined" else None

        found = until(stopped, "the deadly run to be quarantined", DEATHS_WITHIN)
        assert "2 workers in a row died" in found["reason"]

        def rest() -> list[str] | None:
            statuses = [office.run(run)["status"] for run in others]
            return statuses if set(statuses) <= {"completed", "quarantined", "failed"} else None

        assert set(until(rest, "the others to end")) == {"completed"}
        assert any(line.startswith("isolated ended (SIGABRT)") for line in stack.said)

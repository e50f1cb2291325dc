"""kill -9 of everything while runs move, and again after their approval: all finish, or wait honestly in doubt."""

import functools
from pathlib import Path
from typing import Any

import pytest

from tests.support.people import Office, until
from tests.support.stack import Stack

pytestmark = pytest.mark.e2e

RUNS = 20


def test_everything_killed_twice_loses_nothing_and_repeats_no_mail(sandbox: Path) -> None:
    stack = Stack(sandbox / "crashes", ABEYANCE_LEASE_SECONDS="3")
    stack.start()
    office = Office(stack)
    names = [f"crash{n}" for n in range(RUNS)]
    runs = [
        office.start(("hr_onboarding", "hr_onboarding_single")[n % 2], name)
        for n, name in enumerate(names)
    ]
    until(lambda: _any(office, runs, "suspended"), "the first run to reach its gate")
    stack.kill_everything()

    stack.start()
    for run in runs:
        office.wait(run, "suspended")
        assert [gate["kind"] for gate in office.run(run)["gates"]] == ["approval"]
    assert all(len(office.accounts(name)) == 1 for name in names)
    assert all(office.roles(name) == [] for name in names)
    approvals = [office.approval(run) for run in runs]
    for approval in approvals:
        assert office.decide("bea", approval, "approve")[0] == 200
    until(lambda: _any(office, runs, "completed"), "the first run to complete")
    stack.kill_everything()

    with stack:
        for name, run_id in zip(names, runs, strict=True):
            found = until(functools.partial(_at_rest, office, run_id), f"run {run_id}")
            assert len(office.accounts(name)) == 1
            assert office.roles(name) == ["security-level-3"]
            if found["status"] == "completed":
                assert office.mails(name) == 1
            else:
                assert [gate["kind"] for gate in found["gates"]] == ["in_doubt"]
                assert office.mails(name) <= 1


def _any(office: Office, runs: list[str], status: str) -> bool | None:
    return any(office.run(run)["status"] == status for run in runs) or None


def _at_rest(office: Office, run: str) -> dict[str, Any] | None:
    """The run once it is completed, or suspended at something other than its decided approval."""
    found = office.run(run)
    if found["status"] == "completed":
        return found
    waits = found["status"] == "suspended" and found["gates"]
    return found if waits and all(gate["state"] == "open" for gate in found["gates"]) else None

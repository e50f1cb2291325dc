"""A real worker does a run, and `/metrics` of the web process shows its steps; its calls are counted by tool."""

import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.people import Office, until
from tests.support.stack import Stack

pytestmark = pytest.mark.e2e


def test_the_steps_of_a_run_are_in_the_metrics(sandbox: Path) -> None:
    with Stack(sandbox / "metrics") as stack:
        office = Office(stack)
        run = office.start("hr_onboarding", "measured")
        office.wait(run, "suspended")
        until(
            lambda: (
                sum(_values(stack, "abeyance_step_commit_seconds_count")) == _steps(stack) or None
            ),
            "the heartbeat to store the counts",
        )
        assert sum(_values(stack, "abeyance_tokens_total")) > 0
        assert sum(_values(stack, "abeyance_requests_pending")) >= 1
        assert min(_values(stack, "abeyance_sweep_seconds")) > 0
        ((calls,),) = stack.rows(
            "SELECT measures -> 'calls' FROM runtime_worker WHERE measures -> 'calls' <> '{}'"
        )
        assert set(calls) == {"create_account returned"}  # also of the runs of the demonstration


def _steps(stack: Stack) -> int:
    """The entries of all runs without the first ones, which the web process wrote."""
    ((steps,),) = stack.rows("SELECT count(*) - count(DISTINCT run_id) FROM runtime_journalentry")
    return int(steps)


def _values(stack: Stack, name: str) -> list[float]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{stack.url}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    samples = [one for family in text_string_to_metric_families(text) for one in family.samples]
    return [one.value for one in samples if one.name == name]

"""The numbers of runs for the overview: right, bounded, and at the same cost beside any number of ended runs."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.db.models import Q
from django.test.utils import CaptureQueriesContext

from runtime.reads import run_figures
from runtime.reads.run_figures import RunTotals, run_totals
from runtime.reads.run_rows import quarantined

pytestmark = pytest.mark.django_db


def ended(first: int, last: int) -> None:
    """Add runs that completed, one in each minute, from the first to the last of so many minutes ago."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO runtime_run (id, agent, requester, input, status, ended_at) SELECT gen_random_uuid(), 'a',"
            " 'ada', repeat('x', 500), 'completed', now() - n * interval '1 minute'"
            " FROM generate_series(%s::int, %s::int) AS n",
            [first, last],
        )
        cursor.execute("ANALYZE runtime_run")


def active(*statuses: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO runtime_run (id, agent, requester, input, status)"
            " SELECT gen_random_uuid(), 'a', 'ada', '{}', unnest(%s::text[])",
            [list(statuses)],
        )


def blocks(act: Callable[[], Any]) -> int:
    with CaptureQueriesContext(connection) as made:
        act()
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {made[0]['sql']}")
        (plan,) = cursor.fetchone()
    top = (json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]
    return int(top["Shared Hit Blocks"] + top["Shared Read Blocks"])


@pytest.mark.slow
def test_totals_cost_the_same_beside_five_times_as_many_ended_runs() -> None:
    active(*["suspended"] * 3, *["queued", "running", "paused", "quarantined"])
    costs = list[tuple[int, int]]()
    for minutes in ((1, 10_000), (10_001, 50_000)):
        ended(*minutes)
        costs.append((blocks(run_totals), blocks(lambda: quarantined(Q()))))
    few, many = costs
    assert many[0] < 1.5 * few[0] + 20
    assert many[1] < few[1] + 20
    assert quarantined(Q()) == 1
    assert run_totals() == RunTotals(
        people=3, working=2, paused=1, quarantined=1, failed=0, finished=1439, cancelled=0
    )


def test_totals_of_many_runs_say_that_there_are_more(monkeypatch: pytest.MonkeyPatch) -> None:
    active(*["suspended"] * 3)
    assert not run_totals().at_least
    monkeypatch.setattr(run_figures, "MOST", 2)
    found = run_totals()
    assert (found.people, found.at_least) == (2, True)

"""Counts the runs by tab of the list, for the overview, at a cost that does not grow with the number of runs."""

from collections import Counter
from dataclasses import dataclass
from datetime import timedelta

from django.db import connection

from runtime.core.run.continuation import RunStatus
from runtime.queries.lists.filters import TABS

RECENT = timedelta(hours=24)
MOST = 10_000  # active runs that are counted, and as many that ended

_PARTS = {
    "active": "SELECT status FROM runtime_run WHERE ended_at IS NULL",
    "ended": """SELECT status FROM runtime_run
        WHERE ended_at > now() - %(seconds)s * interval '1 second' AND removed_at IS NULL ORDER BY ended_at DESC""",
}
_COUNT = " UNION ALL ".join(
    f"SELECT '{name}', status, count(*) FROM ({sql} LIMIT %(most)s) AS {name} GROUP BY status"
    for name, sql in _PARTS.items()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTotals:
    """The numbers of active runs, and of runs that ended within RECENT. `quarantined` are not in another number.

    With `at_least` there are more: MOST active runs and MOST of the others are counted.
    """

    people: int
    working: int
    paused: int
    quarantined: int
    failed: int
    finished: int
    cancelled: int
    at_least: bool = False


def run_totals() -> RunTotals:
    """Count all runs. The caller has checked that the actor may read every run."""
    with connection.cursor() as cursor:
        cursor.execute(_COUNT, {"seconds": RECENT.total_seconds(), "most": MOST})
        rows = cursor.fetchall()
    parts, numbers = Counter[str](), Counter[str]()
    for part, status, number in rows:
        parts[part] += number
        numbers[status] += number
    tabs = {
        name: sum(numbers[one] for one in statuses if one is not RunStatus.QUARANTINED)
        for name, statuses in TABS.items()
    }
    return RunTotals(
        quarantined=numbers[RunStatus.QUARANTINED],
        at_least=max(parts.values(), default=0) >= MOST,
        **tabs,
    )

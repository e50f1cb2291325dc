"""Counts the runs by tab of the list, for the overview."""

from dataclasses import dataclass
from datetime import timedelta

from django.db.models import Count, Q
from django.db.models.functions import Now

from runtime.core.continuation import RunStatus
from runtime.models import Run
from runtime.queries.lists.filters import TABS

RECENT = timedelta(hours=24)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTotals:
    """The numbers of active runs, and of runs that ended within RECENT. `quarantined` are not in another number."""

    people: int
    working: int
    quarantined: int
    failed: int
    finished: int
    cancelled: int


def run_totals() -> RunTotals:
    """Count all runs. The caller has checked that the actor may read every run."""
    rows = Run.objects.filter(Q(ended_at=None) | Q(ended_at__gt=Now() - RECENT))
    quarantined = Q(status=RunStatus.QUARANTINED)
    tabs = {name: Q(status__in=TABS[name]) & ~quarantined for name in TABS}
    counts = {name: Count("id", filter=where) for name, where in tabs.items()}
    return RunTotals(**rows.aggregate(quarantined=Count("id", filter=quarantined), **counts))

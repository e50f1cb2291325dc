"""Reads the suspected runs: which number each has in the queue of trials, and how many there are."""

from collections.abc import Collection
from dataclasses import dataclass
from uuid import UUID

from django.conf import settings
from django.db.models import Count, F, OuterRef, Q, Subquery, Window
from django.db.models.functions import Coalesce, RowNumber

from runtime.core.run.continuation import RunStatus
from runtime.models import LostLease, Run
from runtime.store.leases import ALONE

_SUSPECTED = Run.objects.filter(isolated=True).exclude(status=RunStatus.QUARANTINED)

_OTHERS = Coalesce(
    Subquery(
        LostLease.objects.filter(worker=OuterRef("worker"))
        .exclude(run_id=OuterRef("run_id"))
        .values("worker")
        .annotate(number=Count("run_id", distinct=True))
        .values("number")
    ),
    0,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """The number of a suspected run in the queue of those that wait to be tried; 0 while a process tries it."""

    number: int
    waiting: int

    @property
    def text(self) -> str:
        """Say what the run waits for."""
        since = "after two workers in a row died or lost it"
        if not self.number:
            return f"is tried in another process, {since}"
        return (
            f"waits to be tried in another process, {since}: number {self.number} of {self.waiting}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspectTotals:
    """The numbers of suspected runs that wait to be tried, and that a process tries now."""

    waiting: int
    tried: int


def read_suspicions(runs: Collection[Run]) -> dict[UUID, Suspicion]:
    """Return the numbers of those of these runs that are suspected. Without any this reads nothing."""
    suspected = [run for run in runs if run.isolated and run.status != RunStatus.QUARANTINED]
    if not suspected:
        return {}
    order = Window(RowNumber(), order_by=[F("due_at").asc(nulls_last=True), F("id").asc()])
    waiting = _SUSPECTED.filter(owner=None).annotate(number=order)
    numbers: dict[UUID, int] = dict(waiting.values_list("id", "number"))
    return {
        run.id: Suspicion(number=numbers.get(run.id, 0), waiting=len(numbers)) for run in suspected
    }


def count_suspects() -> SuspectTotals:
    """Count all suspected runs. The caller has checked that the actor may read every run."""
    waits = Q(owner=None)
    return SuspectTotals(
        **_SUSPECTED.aggregate(waiting=Count("id", waits), tried=Count("id", ~waits))
    )


def list_crashes(run: UUID) -> tuple[LostLease, ...]:
    """Return the crashes in order, each with its `other_runs`; none if the run is not quarantined for crashes."""
    poisoned = Run.objects.filter(
        id=run,
        status=RunStatus.QUARANTINED,
        isolated=True,
        losses__gte=ALONE + settings.SIGNOFF_POISON_LOSSES,
    )
    if not poisoned.exists():
        return ()
    leases = LostLease.objects.filter(run_id=run).annotate(other_runs=_OTHERS)
    return tuple(leases.order_by("id"))

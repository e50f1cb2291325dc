"""Lists the worker crashes for which a run was quarantined."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.conf import settings
from django.db.models import Count, OuterRef, Subquery
from django.db.models.functions import Coalesce

from runtime.core.run.continuation import RunStatus
from runtime.models import LostLease, Run
from runtime.store.leases import ALONE

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
class CrashView:
    """One process that lost the run, and `others`. `host` and `process` are None if they were not recorded."""

    worker: UUID | None
    host: str | None
    process: int | None
    position: int
    others: int
    at: datetime


def crashes(run: UUID) -> tuple[CrashView, ...]:
    """Return the crashes in order; none if the run is not quarantined for crashes."""
    poisoned = Run.objects.filter(
        id=run,
        status=RunStatus.QUARANTINED,
        isolated=True,
        losses__gte=ALONE + settings.SIGNOFF_POISON_LOSSES,
    )
    if not poisoned.exists():
        return ()
    return tuple(
        CrashView(
            worker=row.worker,
            host=row.host,
            process=row.process,
            position=row.position,
            others=row.others,
            at=row.at,
        )
        for row in LostLease.objects.filter(run_id=run).annotate(others=_OTHERS).order_by("id")
    )

"""Lists the worker crashes for which a run was quarantined."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.conf import settings

from runtime.core.continuation import RunStatus
from runtime.models import LostLease, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashView:
    """One process that lost the run. `host` and `process` are None if they were not recorded."""

    worker: UUID | None
    host: str | None
    process: int | None
    position: int
    isolated: bool
    at: datetime


def crashes(run: UUID) -> tuple[CrashView, ...]:
    """Return the crashes in order; none if the run is not quarantined for crashes."""
    poisoned = Run.objects.filter(
        id=run,
        status=RunStatus.QUARANTINED,
        isolated=True,
        losses__gte=settings.ABEYANCE_POISON_LOSSES,
    )
    if not poisoned.exists():
        return ()
    return tuple(
        CrashView(
            worker=row.worker,
            host=row.host,
            process=row.process,
            position=row.position,
            isolated=row.isolated,
            at=row.at,
        )
        for row in LostLease.objects.filter(run_id=run).order_by("id")
    )

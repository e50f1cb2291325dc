"""Filters a list of runs by the tabs of status and by a search."""

from uuid import UUID

from django.db.models import Q

from runtime.core.continuation import RunStatus

MAX_SEARCH = 200

TABS: dict[str, tuple[RunStatus, ...]] = {
    "people": (RunStatus.SUSPENDED,),
    "working": (
        RunStatus.QUEUED,
        RunStatus.RUNNING,
        RunStatus.WAITING,
        RunStatus.PAUSED,
        RunStatus.CANCELLING,
    ),
    "failed": (RunStatus.FAILED, RunStatus.QUARANTINED),
    "finished": (RunStatus.COMPLETED, RunStatus.EXPORTED),
    "cancelled": (RunStatus.CANCELLED,),
}


def filter_runs(where: Q, *, tab: str = "", status: str = "", search: str = "") -> Q:
    """Narrow `where` by one of TABS, a status, and a text in the agent, the business key or the requester.

    A search by id finds that run. The caller has checked tab, status and length.
    """
    if tab:
        where &= Q(status__in=TABS[tab])
    if status:
        where &= Q(status=status)
    if search:
        found = (
            Q(agent__icontains=search)
            | Q(business_key__icontains=search)
            | Q(requester__icontains=search)
        )
        run = _id(search)
        where &= found if run is None else found | Q(id=run)
    return where


def _id(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None

"""Reads the filters of the list of runs from its address."""

from datetime import date, datetime, time, timedelta

from django.db.models import Q
from django.http import HttpRequest
from django.utils import timezone

from runtime.core.continuation import RunStatus
from runtime.errors import InvalidInput
from runtime.queries.lists import filters
from runtime.web.pages import query_params

OLDEST = "oldest"


def chosen(request: HttpRequest) -> dict[str, str]:
    """Return the filters of the address beside the search."""
    found = {
        "tab": query_params.choice(request, "tab", tuple(filters.TABS)),
        "status": query_params.choice(request, "status", tuple(RunStatus)),
        "from": request.GET.get("from", ""),
        "to": request.GET.get("to", ""),
        "order": query_params.choice(request, "order", (OLDEST,)),
    }
    return {name: text for name, text in found.items() if text}


def condition(readable: Q, given: dict[str, str], search: str) -> Q:
    """Return the condition for these filters and a search. Raise InvalidInput naming the field."""
    until = _day("to", given, after=1)
    return filters.filter_runs(
        readable,
        tab=given.get("tab", ""),
        status=given.get("status", ""),
        search=search,
        since=_day("from", given),
        until=until,
    )


def _day(name: str, given: dict[str, str], *, after: int = 0) -> datetime | None:
    """Return the start of a day, or of the one `after` it, in the reader's zone. Raise InvalidInput."""
    if name not in given:
        return None
    try:
        day = date.fromisoformat(given[name])
        if after and day == date.max:
            return None
        day += timedelta(days=after)
        return datetime.combine(day, time.min, tzinfo=timezone.get_current_timezone())
    except (ValueError, OverflowError) as exc:
        raise InvalidInput(name, "must be a day such as 2026-11-24") from exc

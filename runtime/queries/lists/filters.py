"""Filters a list of runs by the tabs of status, a search and the day of the start, and reads searches.

Every word of a search must occur. `agent:…`, `by:…`, `key:…` and the like search one field, `ended:24h` the time of the
end. Quotes keep words together.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Q
from django.db.models.functions import Left
from django.db.models.lookups import IContains
from django.utils import timezone

from runtime.core.run.continuation import RunStatus
from runtime.errors import InvalidInput
from runtime.queries.lists import titles

MAX_SEARCH = 200
MAX_TERMS = 12

TABS: dict[str, tuple[RunStatus, ...]] = {
    "people": (RunStatus.SUSPENDED,),
    "working": (
        RunStatus.QUEUED,
        RunStatus.RUNNING,
        RunStatus.WAITING,
        RunStatus.CANCELLING,
    ),
    "paused": (RunStatus.PAUSED,),
    "failed": (RunStatus.FAILED, RunStatus.QUARANTINED),
    "finished": (RunStatus.COMPLETED, RunStatus.EXPORTED),
    "cancelled": (RunStatus.CANCELLED,),
}

# One letter before a colon is a drive, and two slashes after it begin an address: both are words.
_TERM = re.compile(r'(?:([a-z]{2,}):(?!//))?(?:"([^"]*)"|(\S+))', re.IGNORECASE)
_DURATION = re.compile(r"([1-9][0-9]{0,3})([hd])")
_UNITS = {"h": "hours", "d": "days"}
_HEX_START = re.compile(r"[0-9a-f]{8}[0-9a-f-]*", re.IGNORECASE)  # of an id, as pages show it


def terms(text: str, operators: Collection[str]) -> list[tuple[str, str]]:
    """Split a search into pairs of operator and text; the operator is empty for a plain word.

    Raise InvalidInput naming `q` for an unknown filter or too many words.
    """
    found = [(place.lower(), quoted or word) for place, quoted, word in _TERM.findall(text)]
    if len(found) > MAX_TERMS:
        raise InvalidInput("q", f"must be at most {MAX_TERMS} words")
    for place, _ in found:
        if place and place not in operators:
            known = ", ".join(f"{name}:" for name in operators if name)
            raise InvalidInput(
                "q",
                f'has no filter {place}: (known are {known}); put "quotes" around it to search for the text',
            )
    return found


def duration(text: str, operator: str) -> timedelta:
    """Read the hours or days of a filter, such as `24h`. Raise InvalidInput naming `q`."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise InvalidInput("q", f"must have hours or days, such as 24h or 7d, after {operator}:")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def filter_runs(
    where: Q,
    *,
    tab: str = "",
    status: str = "",
    search: str = "",
    since: datetime | None = None,
    until: datetime | None = None,
) -> Q:
    """Narrow `where` by one of TABS, a status, a search, and the time of the start: from `since` to before `until`.

    The caller has checked tab, status and length. Raise InvalidInput naming `q`.
    """
    if tab:
        where &= Q(status__in=TABS[tab])
    if status:
        where &= Q(status=status)
    if since:
        where &= Q(created_at__gte=since)
    if until:
        where &= Q(created_at__lt=until)
    for place, wanted in terms(search, _PLACES):
        where &= _PLACES[place](wanted)
    return where


def _anywhere(wanted: str) -> Q:
    found = (
        Q(agent__icontains=wanted)
        | Q(business_key__icontains=wanted)
        | Q(requester__icontains=wanted)
    )
    for text in _as_stored(wanted):
        found |= Q(IContains(Left("input", titles.READ_CHARACTERS), text))
    return found | _id(wanted) if _HEX_START.fullmatch(wanted) else found


def _as_stored(wanted: str) -> set[str]:
    """Return the texts to look for in a stored input, which escapes letters that are not ASCII."""
    if wanted.isascii():
        return {json.dumps(wanted)[1:-1]}
    cases = (wanted, wanted.lower(), wanted.upper(), wanted.capitalize())
    return {json.dumps(one)[1:-1] for one in cases}


def _id(wanted: str) -> Q:
    """Return the condition for the run with this id, or with an id that starts like this."""
    digits = wanted.replace("-", "").lower()
    if not 0 < len(digits) <= 32 or set(digits) - set("0123456789abcdef"):
        return Q(pk__in=[])
    return Q(id__gte=UUID(digits.ljust(32, "0")), id__lte=UUID(digits.ljust(32, "f")))


def _ended(wanted: str) -> Q:
    """Return the condition for runs that ended within this time and whose data is not removed."""
    return Q(ended_at__gt=timezone.now() - duration(wanted, "ended"), removed_at__isnull=True)


_PLACES: Mapping[str, Callable[[str], Q]] = {
    "": _anywhere,
    "agent": lambda wanted: Q(agent__icontains=wanted),
    "by": lambda wanted: Q(requester__icontains=wanted),
    "key": lambda wanted: Q(business_key__icontains=wanted),
    "id": _id,
    "ended": _ended,
}
FILTERS = tuple(name for name in _PLACES if name)

"""Filters a list of runs by the tabs of status, a search and the day of the start, and reads searches.

Every word of a search must occur. `agent:…`, `by:…`, `key:…` and the like search one field, `ended:24h` or
`ended:2026-11-24` (a day in UTC) the time of the end. Quotes keep words together.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping
from datetime import MAXYEAR, UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Q
from django.db.models.functions import Left
from django.db.models.lookups import IContains
from django.utils import timezone

from runtime.core.documents import external_call
from runtime.core.run.continuation import RunStatus
from runtime.core.values.json_values import is_text
from runtime.errors import InvalidInput
from runtime.reads.labels import readable_output
from runtime.reads.redaction import redact

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
FIELDS = 3
FIELD_CHARACTERS = 60

READ_CHARACTERS = (
    2_000  # of a stored input or output; a longer one is cut, is no JSON then, and has no title
)
ANSWER_CHARACTERS = 160


def split_terms(text: str, operators: Collection[str]) -> list[tuple[str, str]]:
    """Split a search into pairs of operator and text; the operator is empty for a plain word.

    Raise InvalidInput naming `q` for an unknown filter, too many words or a character that is not text.
    """
    if not is_text(text):
        raise InvalidInput("q", "contains a character that is not text")
    pairs = [(operator.lower(), quoted or word) for operator, quoted, word in _TERM.findall(text)]
    if len(pairs) > MAX_TERMS:
        raise InvalidInput("q", f"must be at most {MAX_TERMS} words")
    for operator, _ in pairs:
        if operator and operator not in operators:
            names = ", ".join(f"{name}:" for name in operators if name)
            raise InvalidInput(
                "q",
                f'has no filter {operator}: (known are {names}); put "quotes" around it to search for the text',
            )
    return pairs


def read_duration(text: str, operator: str) -> timedelta:
    """Read the hours or days of a filter, such as `24h`. Raise InvalidInput naming `q`."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise InvalidInput("q", f"must have hours or days, such as 24h or 7d, after {operator}:")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def read_day(text: str) -> datetime | None:
    """Return the start of a day such as 2026-11-24 in UTC; None for any other text, and in the last year of a date."""
    try:
        day = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        return None
    return day if day.year < MAXYEAR else None  # so that the next day is one


def filter_runs(
    condition: Q,
    *,
    tab: str = "",
    status: str = "",
    search: str = "",
    since: datetime | None = None,
    until: datetime | None = None,
) -> Q:
    """Narrow `condition` by one of TABS, a status, a search, and the time of the start: from `since` to before `until`.

    The caller has checked tab, status and length. Raise InvalidInput naming `q`.
    """
    if tab:
        condition &= Q(status__in=TABS[tab])
    if status:
        condition &= Q(status=status)
    if since:
        condition &= Q(created_at__gte=since)
    if until:
        condition &= Q(created_at__lt=until)
    for operator, text in split_terms(search, _OPERATORS):
        condition &= _OPERATORS[operator](text)
    return condition


def may_begin_id(text: str) -> bool:
    """Tell whether the text may be the beginning of an id."""
    return _HEX_START.fullmatch(text) is not None


def _match_anywhere(text: str) -> Q:
    condition = (
        Q(agent__icontains=text) | Q(business_key__icontains=text) | Q(requester__icontains=text)
    )
    cases = {text, text.lower(), text.upper(), text.capitalize()}
    for case in {text} if text.isascii() else cases:
        escaped = json.dumps(case)[1:-1]  # a stored input has letters that are not ASCII like this
        condition |= Q(IContains(Left("input", READ_CHARACTERS), escaped))
    return condition | _match_id(text) if may_begin_id(text) else condition


def _match_id(text: str) -> Q:
    """Return the condition for the run with this id, or with an id that starts like this."""
    digits = text.replace("-", "").lower()
    if not 0 < len(digits) <= 32 or set(digits) - set("0123456789abcdef"):
        return Q(pk__in=[])
    return Q(id__gte=UUID(digits.ljust(32, "0")), id__lte=UUID(digits.ljust(32, "f")))


def _match_ended(text: str) -> Q:
    """Return the condition for runs that ended on a day (UTC) or within a time, and whose data is not removed."""
    if day := read_day(text):
        return Q(ended_at__gte=day, ended_at__lt=day + timedelta(days=1), removed_at__isnull=True)
    return Q(ended_at__gt=timezone.now() - read_duration(text, "ended"), removed_at__isnull=True)


_OPERATORS: Mapping[str, Callable[[str], Q]] = {
    "": _match_anywhere,
    "agent": lambda text: Q(agent__icontains=text),
    "by": lambda text: Q(requester__icontains=text),
    "key": lambda text: Q(business_key__icontains=text),
    "id": _match_id,
    "ended": _match_ended,
}
FILTERS = tuple(name for name in _OPERATORS if name)


def format_title(stored: str | None, agent: str) -> str:
    """Return the first fields of a stored input as text; empty if it is too long or has none that fits a title."""
    document = _read_json(stored)
    if document is not None and agent == external_call.AGENT:
        document = external_call.read_call_names(document)
    values = list(document.values()) if isinstance(document, dict) else [document]
    texts = [
        " ".join(str(value).split())
        for value in values
        if isinstance(value, str | int | float) and not isinstance(value, bool)
    ]
    plain = [text for text in texts if text]
    return " · ".join(_cut(text, FIELD_CHARACTERS) for text in plain[:FIELDS])


def cut_answer(stored: str | None, key: str | None) -> str:
    """Return the beginning of the stored output of a run with this key; empty if it is too long to read here."""
    output = readable_output(key, _read_json(stored))
    text = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
    return "" if output is None else _cut(text, ANSWER_CHARACTERS)


def _read_json(stored: str | None) -> Any:
    try:
        return None if stored is None else redact(json.loads(stored))
    except (ValueError, RecursionError):
        return None


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"

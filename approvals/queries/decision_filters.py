"""Reads the filters of the history of decisions: as parameters, or as `key:value` in the search text.

Names match exactly, because an index finds them. The other words of the search must each occur in the sentence, the
path or the requester, as in the inbox.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, tzinfo
from typing import Any

from approvals.models import Approval
from approvals.queries import filters
from runtime.core.values.enums import Risk
from runtime.errors import InvalidInput
from runtime.ports.approvals import CallOutcome
from runtime.reads.filters import terms

MAX_NAME = 200
CHANGES_REQUESTED = "changes_requested"
EDITED = "edited"
VERDICTS = (
    *(str(status) for status in Approval.Status if status != Approval.Status.PENDING),
    CHANGES_REQUESTED,
    EDITED,
)
CHOICES = {
    "risk": tuple(map(str, Risk)),
    "verdict": VERDICTS,
    "outcome": tuple(map(str, CallOutcome)),
}
NAMES = ("person", "by", "agent", "tool")
KEYS = (*NAMES, *CHOICES, "since", "until")


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionFilter:
    """The decisions to list; an empty filter lists all.

    `person` decided or voted, or a deputy did so in their place; `by` started the run. `agent` proposed the call or is
    the agent of the run. `since` is inclusive, `until` exclusive. `given` holds the filters as they were written,
    without the words.
    """

    person: str = ""
    by: str = ""
    agent: str = ""
    tool: str = ""
    risk: str = ""
    verdict: str = ""
    outcome: str = ""
    since: datetime | None = None
    until: datetime | None = None
    words: str = ""
    given: Mapping[str, str] = field(default_factory=dict)


def read(given: Mapping[str, str], zone: tzinfo) -> DecisionFilter:
    """Read the parameters KEYS and `q`; empty ones filter nothing. A day is one of `zone`.

    Raises InvalidInput naming the parameter, or `q` for a filter inside the search text.
    """
    values = {key: text.strip() for key, text in given.items() if key in KEYS and text.strip()}
    words = []
    search = given.get("q", "")
    if len(search) > filters.MAX_LENGTH:
        raise InvalidInput("q", f"must be at most {filters.MAX_LENGTH} characters")
    for key, text in terms(search, KEYS):
        if not key:
            words.append(text)
        elif key in values:
            raise InvalidInput("q", f"has {key}: more than once, or beside the field of that name")
        elif text:
            values[key] = text
    found: dict[str, Any] = {key: _value(key, text, zone) for key, text in values.items()}
    return DecisionFilter(words=_checked(words), given=values, **found)


def _checked(words: list[str]) -> str:
    """Return the words as the search of the inbox reads them. Raises InvalidInput naming `q`."""
    text = " ".join(f'"{word}"' if " " in word or ":" in word else word for word in words)
    filters.condition(text)
    return text


def _value(key: str, text: str, zone: tzinfo) -> str | datetime:
    return _READERS.get(key, _name)(key, text, zone)


def _name(key: str, text: str, _: tzinfo) -> str:
    if len(text) > MAX_NAME:
        raise InvalidInput(key, f"must be at most {MAX_NAME} characters")
    if "\0" in text:
        raise InvalidInput(key, "must not contain a null character")
    return text


def _choice(key: str, text: str, _: tzinfo) -> str:
    if text.lower() not in CHOICES[key]:
        raise InvalidInput(key, f"must be one of {', '.join(CHOICES[key])}")
    return text.lower()


def _moment(key: str, text: str, zone: tzinfo) -> datetime:
    """Read a day, or a time that is in `zone` if it names no other."""
    try:
        if len(text) == len("2026-11-24"):
            day = date.fromisoformat(text)
            return midnight(day + timedelta(days=key == "until"), zone)
        at = datetime.fromisoformat(text)
        return at if at.tzinfo else at.replace(tzinfo=zone)
    except (ValueError, OverflowError):
        raise InvalidInput(
            key, "must be a day as 2026-11-24, or a time as 2026-11-24T18:30"
        ) from None


def midnight(day: date, zone: tzinfo) -> datetime:
    """Return the start of a day in a zone."""
    return datetime.combine(day, time.min, tzinfo=zone)


_READERS: Mapping[str, Callable[[str, str, tzinfo], str | datetime]] = {
    **dict.fromkeys(CHOICES, _choice),
    "since": _moment,
    "until": _moment,
}

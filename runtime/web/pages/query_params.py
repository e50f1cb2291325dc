"""Reads the query parameters of pages."""

from datetime import UTC, date, datetime, timedelta
from uuid import UUID

from django.http import Http404, HttpRequest

from runtime.control import user_actions
from runtime.errors import InvalidInput
from runtime.reads.filters import MAX_SEARCH, read_day
from runtime.web.requests import read_number

PERIOD_DAYS = 7  # without a choice
MAX_PERIOD_DAYS = 400


def cursor(request: HttpRequest) -> UUID | None:
    """Return the cursor of the list. Anything but an id is answered with 404."""
    text = request.GET.get("cursor")
    try:
        return None if text is None else UUID(text)
    except ValueError as exc:
        raise Http404 from exc


def page_number(request: HttpRequest) -> int:
    """Return the page number, from 1. Anything else is answered with 404."""
    number = read_number(request.GET.get("page", "1"), digits=6)
    if not number:
        raise Http404
    return number


def choice(request: HttpRequest, name: str, allowed: tuple[str, ...]) -> str:
    """Return one of the allowed values, empty if it is missing. Other values are answered with 404."""
    text = request.GET.get(name, "")
    if text and text not in allowed:
        raise Http404
    return text


def search(request: HttpRequest) -> str:
    """Return the text of the search. Raise InvalidInput naming `q`."""
    return user_actions.validate_text("q", request.GET.get("q", "").strip(), MAX_SEARCH)


def read_period(
    first: str, last: str, names: tuple[str, str] = ("from", "to")
) -> tuple[date, date]:
    """Return the first day (UTC) and the day after the last one; without text the last PERIOD_DAYS.

    Raise InvalidInput naming the parameter, which has one of the `names`.
    """
    end = (_read_day(names[1], last) if last else datetime.now(UTC).date()) + timedelta(days=1)
    start = _read_day(names[0], first) if first else end - timedelta(days=PERIOD_DAYS)
    if start >= end:
        raise InvalidInput(names[0], "must not be after the last day")
    if (end - start).days > MAX_PERIOD_DAYS:
        raise InvalidInput(
            names[0], f"must be less than {MAX_PERIOD_DAYS} days before the last day"
        )
    return start, end


def _read_day(name: str, text: str) -> date:
    day = read_day(text)
    if day is None or day.year < 2000:
        raise InvalidInput(name, "must be a day such as 2026-11-24")
    return day.date()

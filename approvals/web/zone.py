"""The time zone of a person, as the browser's script says it in a cookie, or as a program names it."""

from datetime import UTC, date, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

from django.http import HttpRequest

from approvals.queries.decision_filters import midnight
from runtime.errors import InvalidInput

COOKIE = "abeyance_zone"
MAX_NAME = 64


def of_reader(request: HttpRequest) -> tzinfo:
    """Return the zone of the browser; UTC without scripts."""
    try:
        return named(request.COOKIES.get(COOKIE, ""), COOKIE)
    except InvalidInput:
        return UTC


def named(name: str, field: str) -> tzinfo:
    """Return the zone of this IANA name. Raises InvalidInput naming `field`."""
    try:
        if len(name) <= MAX_NAME:
            return ZoneInfo(name)
    except (ValueError, OSError, KeyError):  # no such name, or a path that leads elsewhere
        pass
    raise InvalidInput(field, "must be a time zone as Europe/Berlin")


def day(text: object, field: str, of: tzinfo, *, after: int = 0) -> datetime:
    """Return the start of this day, or of the one `after` it. Raises InvalidInput naming `field`."""
    try:
        return midnight(date.fromisoformat(str(text)) + timedelta(days=after), of)
    except (ValueError, OverflowError):
        raise InvalidInput(field, "must be a date such as 2026-11-24") from None

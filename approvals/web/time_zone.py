"""The time zone of a reader: the one they chose, else the one that the browser's script says in a cookie."""

from datetime import UTC, date, datetime, timedelta, tzinfo

from django.http import HttpRequest

from approvals.people.preferences import ReaderTime, zone_of
from approvals.reads.filters import midnight
from runtime.errors import InvalidInput

COOKIE = "signoff_zone"
CHOSEN = "reader_time"  # in the session: zone and clock
MAX_NAME = 64


def read_reader_zone(request: HttpRequest) -> tzinfo:
    """Return the zone that the reader chose, else that of the browser; UTC without scripts."""
    return zone_of(read_choice(request).zone) or read_browser_zone(request)


def read_browser_zone(request: HttpRequest) -> tzinfo:
    """Return the zone of the browser; UTC without scripts."""
    try:
        return find_zone(request.COOKIES.get(COOKIE, ""), COOKIE)
    except InvalidInput:
        return UTC


def read_choice(request: HttpRequest) -> ReaderTime:
    """Return the reader's choice, which the session remembers from the login."""
    user = getattr(request, "user", None)  # missing if an earlier middleware refused the request
    stored = request.session.get(CHOSEN) if user is not None and user.is_authenticated else None
    return ReaderTime(zone=stored[0], clock=stored[1]) if stored else ReaderTime()


def remember(request: HttpRequest, choice: ReaderTime) -> None:
    """Keep the reader's choice in the session."""
    request.session[CHOSEN] = [choice.zone, choice.clock]


def find_zone(name: str, field: str) -> tzinfo:
    """Return the zone of this IANA name. Raises InvalidInput naming `field`."""
    zone = zone_of(name) if len(name) <= MAX_NAME else None
    if zone is None:
        raise InvalidInput(field, "must be a time zone as Europe/Berlin")
    return zone


def parse_day(text: object, field: str, of: tzinfo, *, after: int = 0) -> datetime:
    """Return the start of this day, or of the one `after` it. Raises InvalidInput naming `field`."""
    try:
        return midnight(date.fromisoformat(str(text)) + timedelta(days=after), of)
    except (ValueError, OverflowError):
        raise InvalidInput(field, "must be a date such as 2026-11-24") from None

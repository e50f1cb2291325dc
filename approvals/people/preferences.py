"""What people choose for themselves: zone and clock of the times they read, and views that they saved.

A reader who chose no zone has the one that the browser's script says in a cookie.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from uuid import UUID
from zoneinfo import ZoneInfo, available_timezones

from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest

from approvals.models import SavedView, TimePreference
from approvals.reads.filters import compute_midnight
from runtime.errors import InvalidInput

CLOCKS = ("24", "12")  # hours
MAX_VIEWS = 20  # for each person
MAX_NAME = 40
MAX_ZONE_NAME = 64
COOKIE = "signoff_zone"  # in which the browser's script says its zone
CHOSEN = "reader_time"  # in the session: zone and clock
INBOX = "inbox"
RUNS = "runs"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderTime:
    """A person's choice. `zone` is an IANA name, empty for the browser's."""

    zone: str = ""
    clock: str = CLOCKS[0]


def read_time_preference(username: str) -> ReaderTime:
    """Return a person's choice."""
    row = TimePreference.objects.filter(person__username=username).first()
    return ReaderTime() if row is None else ReaderTime(zone=row.zone, clock=row.clock)


def save_time(username: str, *, zone: str, clock: str) -> ReaderTime:
    """Save a choice, and return it. Raise InvalidInput naming `zone` or `clock`."""
    if zone and zone not in list_zones():
        raise InvalidInput("zone", "must be a time zone as Europe/Berlin, or empty")
    if clock not in CLOCKS:
        raise InvalidInput("clock", f"must be {' or '.join(CLOCKS)}")
    person = User.objects.get(username=username)
    TimePreference.objects.update_or_create(person=person, defaults={"zone": zone, "clock": clock})
    return ReaderTime(zone=zone, clock=clock)


def list_zones() -> list[str]:
    """Return the names of all time zones: of places, and UTC."""
    return sorted(
        name
        for name in available_timezones()
        if name == "UTC" or ("/" in name and not name.startswith(("Etc/", "SystemV/")))
    )


def find_named_zone(name: str) -> ZoneInfo | None:
    """Return the zone of this name, None if the system does not have it, or not any more."""
    try:
        return ZoneInfo(name) if 0 < len(name) <= MAX_ZONE_NAME else None
    except (ValueError, OSError, KeyError):  # or a path that leads elsewhere
        return None


def read_reader_zone(request: HttpRequest) -> tzinfo:
    """Return the zone that the reader chose, else that of the browser; UTC without scripts."""
    return find_named_zone(read_choice(request).zone) or read_browser_zone(request)


def read_browser_zone(request: HttpRequest) -> tzinfo:
    """Return the zone of the browser; UTC without scripts."""
    return find_named_zone(request.COOKIES.get(COOKIE, "")) or UTC


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
    zone = find_named_zone(name)
    if zone is None:
        raise InvalidInput(field, "must be a time zone as Europe/Berlin")
    return zone


def parse_day(text: object, field: str, of: tzinfo, *, after: int = 0) -> datetime:
    """Return the start of this day, or of the one `after` it. Raises InvalidInput naming `field`."""
    try:
        return compute_midnight(date.fromisoformat(str(text)) + timedelta(days=after), of)
    except (ValueError, OverflowError):
        raise InvalidInput(field, "must be a date such as 2026-11-24") from None


def list_views(username: str, page: str = INBOX) -> list[SavedView]:
    """Return a person's views of a page by name. The `place` of each has the parameters of the list."""
    return list(SavedView.objects.filter(owner__username=username, page=page).order_by("name"))


@transaction.atomic
def save_view(
    username: str, name: str, position: Mapping[str, str], page: str = INBOX
) -> SavedView:
    """Save the parameters of a list under a name, in place of a view of that name of the same page.

    Raise InvalidInput naming `name`.
    """
    name = name.strip()
    if not 0 < len(name) <= MAX_NAME or not name.isprintable():
        raise InvalidInput("name", f"must have 1 to {MAX_NAME} visible characters")
    owner = User.objects.select_for_update().get(username=username)  # two at once count correctly
    views = SavedView.objects.filter(owner=owner)
    if views.exclude(name=name).count() >= MAX_VIEWS:
        raise InvalidInput(
            "name", f"cannot be added: you have {MAX_VIEWS} views already; delete one first"
        )
    if views.filter(name=name).exclude(page=page).exists():
        raise InvalidInput("name", "is that of a view of another page; choose another name")
    return SavedView.objects.update_or_create(
        owner=owner, name=name, defaults={"place": dict(position), "page": page}
    )[0]


def delete_view(username: str, view: UUID) -> None:
    """Delete a view of a person. Deleting it again has no effect."""
    SavedView.objects.filter(owner__username=username, id=view).delete()

"""What people choose for themselves: zone and clock of the times they read, and views that they saved."""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID
from zoneinfo import ZoneInfo, available_timezones

from django.contrib.auth.models import User
from django.db import transaction

from approvals.models import SavedView, TimePreference
from runtime.errors import InvalidInput

CLOCKS = ("24", "12")  # hours
MAX_VIEWS = 20  # for each person
MAX_NAME = 40
INBOX = "inbox"
RUNS = "runs"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderTime:
    """A person's choice. `zone` is an IANA name, empty for the browser's."""

    zone: str = ""
    clock: str = CLOCKS[0]


def time_of(username: str) -> ReaderTime:
    """Return a person's choice."""
    row = TimePreference.objects.filter(person__username=username).first()
    return ReaderTime() if row is None else ReaderTime(zone=row.zone, clock=row.clock)


def save_time(username: str, *, zone: str, clock: str) -> ReaderTime:
    """Save a choice, and return it. Raise InvalidInput naming `zone` or `clock`."""
    if zone and zone not in zones():
        raise InvalidInput("zone", "must be a time zone as Europe/Berlin, or empty")
    if clock not in CLOCKS:
        raise InvalidInput("clock", f"must be {' or '.join(CLOCKS)}")
    person = User.objects.get(username=username)
    TimePreference.objects.update_or_create(person=person, defaults={"zone": zone, "clock": clock})
    return ReaderTime(zone=zone, clock=clock)


def zones() -> list[str]:
    """Return the names of all time zones: of places, and UTC."""
    return sorted(
        name
        for name in available_timezones()
        if name == "UTC" or ("/" in name and not name.startswith(("Etc/", "SystemV/")))
    )


def zone_of(name: str) -> ZoneInfo | None:
    """Return the zone of this name, None if the system does not have it, or not any more."""
    try:
        return ZoneInfo(name) if name else None
    except (ValueError, OSError, KeyError):  # or a path that leads elsewhere
        return None


def views_of(username: str, page: str = INBOX) -> list[SavedView]:
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

"""Saves the time zone and the clock in which a person reads times. Without a choice the browser's zone counts."""

from dataclasses import dataclass
from zoneinfo import ZoneInfo, available_timezones

from django.contrib.auth.models import User

from approvals.models import TimePreference
from runtime.errors import InvalidInput

CLOCKS = ("24", "12")  # hours


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderTime:
    """A person's choice. `zone` is an IANA name, empty for the browser's."""

    zone: str = ""
    clock: str = CLOCKS[0]


def of(username: str) -> ReaderTime:
    """Return a person's choice."""
    row = TimePreference.objects.filter(person__username=username).first()
    return ReaderTime() if row is None else ReaderTime(zone=row.zone, clock=row.clock)


def save(username: str, *, zone: str, clock: str) -> ReaderTime:
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
    """Return the zone of a saved name, None if the system does not have it any more."""
    try:
        return ZoneInfo(name) if name else None
    except (ValueError, OSError, KeyError):
        return None

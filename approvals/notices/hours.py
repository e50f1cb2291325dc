"""When a person wants notices: quiet hours in their zone, and a digest of the rest."""

from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo

from django.contrib.auth.models import User

from approvals.models import NoticeTimes
from approvals.people.preferences import zone_of, zones
from runtime.errors import InvalidInput

_HOURS = {str(hour) for hour in range(24)}


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeHours:
    """Quiet hours from one time to another, also over midnight, and the hours of the digest; empty without one."""

    zone: str = ""
    quiet_from: time | None = None
    quiet_until: time | None = None
    urgent_at_night: bool = False
    digest: tuple[int, ...] = ()

    def is_quiet(self, at: datetime) -> bool:
        """Tell whether these are quiet hours."""
        if self.quiet_from is None or self.quiet_until is None:
            return False
        local = at.astimezone(self._zone).time()
        if self.quiet_from < self.quiet_until:
            return self.quiet_from <= local < self.quiet_until
        return local >= self.quiet_from or local < self.quiet_until

    def digest_end(self, at: datetime) -> datetime:
        """Return until when something must have come to be told now: the last hour of the digest, or now."""
        if not self.digest:
            return at
        local = at.astimezone(self._zone)
        hours = [hour for hour in self.digest if hour <= local.hour]
        day = local if hours else local - timedelta(days=1)
        return day.replace(hour=max(hours or self.digest), minute=0, second=0, microsecond=0)

    @property
    def _zone(self) -> tzinfo:
        return zone_of(self.zone) or UTC


def find_hours(username: str) -> NoticeHours:
    """Return the hours of a person."""
    row = NoticeTimes.objects.filter(person__username=username).first()
    if row is None:
        return NoticeHours()
    return NoticeHours(
        zone=row.zone,
        quiet_from=row.quiet_from,
        quiet_until=row.quiet_until,
        urgent_at_night=row.urgent_at_night,
        digest=tuple(row.digest),
    )


def save_hours(
    username: str,
    *,
    zone: str,
    quiet_from: str,
    quiet_until: str,
    urgent_at_night: bool,
    digest: str,
) -> None:
    """Save the hours of a person; those of the digest have commas. Raise InvalidInput naming a field."""
    if zone not in zones():
        raise InvalidInput("zone", "must be a time zone as Europe/Berlin")
    if bool(quiet_from) is not bool(quiet_until) or (quiet_from and quiet_from == quiet_until):
        raise InvalidInput("quiet_until", "must be another time than the first, or both empty")
    hours = digest.replace(",", " ").split()
    if not all(text in _HOURS for text in hours):
        raise InvalidInput("digest", "must be hours from 0 to 23")
    NoticeTimes.objects.update_or_create(
        person=User.objects.get(username=username),
        defaults={
            "zone": zone,
            "quiet_from": _read(quiet_from, "quiet_from"),
            "quiet_until": _read(quiet_until, "quiet_until"),
            "urgent_at_night": urgent_at_night,
            "digest": sorted(set(map(int, hours))),
        },
    )


def _read(text: str, field: str) -> time | None:
    try:
        return time.fromisoformat(text) if text else None
    except ValueError as exc:
        raise InvalidInput(field, "must be a time as 22:00") from exc

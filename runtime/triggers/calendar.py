"""The times of a schedule: of a cron expression in a time zone, or of an interval. Pure.

When clocks change, a cron expression follows the rule of Debian's cron. If minute and hour are numbers, as in
`30 2 * * *`, each day has its time once: a time that does not exist is moved to the end of the gap, and of a time that
exists twice the first counts. If minute or hour begins with `*`, the expression follows the clock: a time that does not
exist is left out, and one that exists twice counts twice. An interval counts elapsed time and knows no time zone.

The library finds the local times. It is given no zone, because its steps of whole hours miss times where clocks change
by half an hour.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from heapq import heappop, heappush
from uuid import UUID
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

MAX_CRON = 100  # characters of an expression
MIN_EVERY, MAX_EVERY = 60, 366 * 24 * 3600  # seconds of an interval
MAX_JITTER = 3600  # seconds

_ALLOWED = {
    "minute": "0 to 59",
    "hour": "0 to 23",
    "day of month": "1 to 31, or L",
    "month": "1 to 12, or JAN to DEC",
    "day of week": "0 to 7, or SUN to SAT",
}
_ANY_DAY = datetime(2000, 1, 1, tzinfo=UTC)
_SECOND, _MINUTE = timedelta(seconds=1), timedelta(minutes=1)
_CHANGE = timedelta(hours=3)  # more than clocks change by


class NeverComes(ValueError):
    """The expression is not a cron expression, or no time of the next 50 years matches it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calendar:
    """The times from `starts_at` to `ends_at`: those of `cron` in `zone`, or every `every` seconds from `starts_at`."""

    cron: str
    every: int | None
    zone: str
    starts_at: datetime
    ends_at: datetime | None = None

    def extend_start(self, first: datetime) -> "Calendar":
        """Return the same rhythm without an end, and from `first` on if that is before its start."""
        start = min(first, self.starts_at)
        if self.every is not None:
            step = timedelta(seconds=self.every)
            start = self.starts_at - (self.starts_at - start) // step * step
        return replace(self, starts_at=start, ends_at=None)

    def after(self, moment: datetime) -> Iterator[datetime]:
        """Yield the times after a moment, the earliest first, in UTC."""
        last = max(moment, self.starts_at - _SECOND)
        for at in self._near(last, 1):
            if self.ends_at is not None and at > self.ends_at:
                return
            if at > last and at >= self.starts_at:
                last = at
                yield at

    def find_first_after(self, moment: datetime) -> datetime | None:
        """Return the first time after a moment, None if there is none."""
        return next(self.after(moment), None)

    def has(self, at: datetime) -> bool:
        """Tell whether this is one of the times."""
        return self.find_first_after(at - _SECOND) == at

    def list_newest_times(self, first: datetime, until: datetime, limit: int) -> list[datetime]:
        """Return the newest times from `first` to `until`, at most so many, the earliest first."""
        first = max(first, self.starts_at)
        until = until if self.ends_at is None else min(until, self.ends_at)
        times = list[datetime]()
        for at in self._near(until, -1):
            if at < first or len(times) == limit:
                break
            if at <= until and at not in times[-1:]:
                times.append(at)
        return times[::-1]

    def list_times_between(self, first: datetime, until: datetime, limit: int) -> list[datetime]:
        """Return the times from `first` to `until`, at most so many, the earliest first."""
        times = list[datetime]()
        for at in self.after(first - _SECOND):
            if at > until or len(times) == limit:
                break
            times += [at] if at >= first else []
        return times

    def _near(self, moment: datetime, direction: int) -> Iterator[datetime]:
        """Yield times in order, some before the moment or twice; in reverse order, some after it, with -1."""
        if self.every is not None:
            begin = moment if direction > 0 else moment + _SECOND
            return self._steps(begin, direction * timedelta(seconds=self.every))
        local = moment.astimezone(ZoneInfo(self.zone)).replace(tzinfo=None) - direction * _CHANGE
        times = CronSim(self.cron, local, reverse=direction < 0)
        return self._moments(_list_local_times(times), direction)

    def _steps(self, moment: datetime, step: timedelta) -> Iterator[datetime]:
        at = self.starts_at + max((moment - self.starts_at) // abs(step), 0) * abs(step)
        while True:
            yield at
            at += step

    def _moments(self, local: Iterable[datetime], direction: int) -> Iterator[datetime]:
        """Return the moments of local times, in their order, or in reverse order with the direction -1.

        A local time that exists twice has a second moment, which comes after the first moments of the next local times.
        """
        minute, hour, *_ = self.cron.split()
        # With its minutes and hours named, each day has each of its times once.
        once = not minute.startswith("*") and not hour.startswith("*")
        zone = ZoneInfo(self.zone)
        pending = list[float]()
        for time in local:
            stamps = [at.timestamp() * direction for at in _list_moments(time, zone, once=once)]
            for stamp in stamps:
                heappush(pending, stamp)
            while pending and stamps and pending[0] <= min(stamps):
                yield datetime.fromtimestamp(heappop(pending) * direction, UTC)
        while pending:
            yield datetime.fromtimestamp(heappop(pending) * direction, UTC)


def check_cron(cron: str, zone: str, after: datetime) -> None:
    """Raise NeverComes, with the reason, unless the expression has a time."""
    if len(cron) > MAX_CRON:
        raise NeverComes(f"must have at most {MAX_CRON} characters")
    fields = cron.split()
    if len(fields) != len(_ALLOWED):
        raise NeverComes("needs five fields: minute, hour, day of month, month, day of week")
    try:
        CronSim(cron, _ANY_DAY)
    except CronSimError as exc:
        raise NeverComes(_explain(fields, str(exc))) from exc
    calendar = Calendar(cron=cron, every=None, zone=zone, starts_at=after)
    if calendar.find_first_after(after) is None:
        raise NeverComes("never comes in the next 50 years")


def compute_delay(schedule: UUID, at: datetime, jitter: int) -> timedelta:
    """Return the delay of this time, at most `jitter` seconds: always the same for one time of one schedule."""
    if not jitter:
        return timedelta()
    seed = sha256(f"{schedule} {at.astimezone(UTC).isoformat()}".encode()).digest()
    return timedelta(seconds=int.from_bytes(seed[:8], "big") % (jitter + 1))


def _list_local_times(cron: CronSim) -> Iterator[datetime]:
    """Yield the local times until the library finds none in 50 years, or reaches the first or last year."""
    try:
        yield from cron
    except (OverflowError, ValueError):
        return


def _list_moments(local: datetime, zone: ZoneInfo, *, once: bool) -> list[datetime]:
    """Return the moments of a local time: none if it does not exist, or if `once`, the end of the gap."""
    while local != local.replace(tzinfo=zone).astimezone(UTC).astimezone(zone).replace(tzinfo=None):
        if not once:
            return []
        local += _MINUTE
    first = local.replace(tzinfo=zone).astimezone(UTC)
    second = local.replace(tzinfo=zone, fold=1).astimezone(UTC)
    return [first] if once or first == second else [first, second]


def _explain(fields: list[str], message: str) -> str:
    """Return the reason. The library calls a day that its month does not have a bad day."""
    name = message.removeprefix("Bad ").replace("-", " ")
    wrong = f"has a wrong {name}: it is {_ALLOWED[name]}"
    if name != "day of month":
        return wrong
    try:
        CronSim(f"0 0 {fields[2]} * 1", _ANY_DAY)
    except CronSimError:
        return wrong
    return f"never comes: no month of {fields[3]} has a day {fields[2]}"

"""The definition of a schedule, as it is signed, its checks, and its act at each time: start, wait or skip. Pure.

A time is missed if it came more than a minute ago, for example because no sweeper ran. Its act depends on nothing
but the time and the rows of the schedule, and each time is in one plan only.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import accumulate, takewhile
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from runtime.core.values.limits import MAX_KEY
from runtime.errors import InvalidInput, require_json_input
from runtime.triggers import calendar, fields
from runtime.triggers.calendar import Calendar, NeverComes, compute_delay

MAX_ZONE = 64  # characters of the name of a time zone
LAST_YEAR = 2200
_UNIT = {"minutes": 60, "hours": 3600, "days": 86400}
_TIME_FIELD = re.compile(r"\{\{ *(time|date) *\}\}")
_TIME = fields.make_rule({"type": ["string", "null"], "format": "date-time"}, default=None)
LATE = timedelta(seconds=60)
MAX_MISSED = 100  # missed times that are handled; earlier ones start nothing
MAX_WAITING_TIMES = 100  # times of one schedule that wait for a run to end
EARLIER = "missed, like all earlier ones"
MISSED = "missed"
OVERLAPS = "an earlier run had not ended"
TIMES_FULL = f"{MAX_WAITING_TIMES} times waited already"


class Missed(StrEnum):
    """The rule for times that passed while no sweeper ran."""

    SKIP = "skip"  # none of them starts a run
    ONCE = "once"  # the last one starts a run, unless a time is due anyway
    ALL = "all"  # each of them starts a run, the earliest first


class Overlap(StrEnum):
    """The rule for a time while an earlier run of the schedule has not ended."""

    SKIP = "skip"  # it starts no run
    QUEUE = "queue"  # it waits until that run has ended
    ALLOW = "allow"  # it starts a run beside that one


# They differ between machines, so two sweepers would find different times, and each would start its own runs.
_OF_MACHINES = frozenset({"localtime", "posixrules"})


def _read_zone(value: object, field: str) -> str:
    name = fields.read_text(value, field).strip()
    try:
        if name not in _OF_MACHINES and 0 < len(name) <= MAX_ZONE and ZoneInfo(name).key:
            return name
    except (ValueError, OSError, KeyError):  # no such name, or a path that leads elsewhere
        pass
    raise InvalidInput(field, "must be a time zone such as Europe/Berlin")


def _read_thread(value: object, field: str) -> str:
    text = fields.read_text(value or "", field).strip()
    if len(text) > MAX_KEY:
        raise InvalidInput(field, f"must have at most {MAX_KEY} characters")
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleDefinition:
    """One schedule: when it starts which agent on which input. `every` and `jitter` are seconds."""

    name: str = field(metadata=fields.NAME)
    agent: str = field(metadata=fields.TEXT)
    input: Any = field(metadata=fields.make_rule({}, require_json_input, default={}))
    cron: str = field(metadata=fields.make_rule({"type": "string"}, default=""))
    every: int | None = field(
        metadata=fields.make_number_rule(
            calendar.MIN_EVERY, calendar.MAX_EVERY, "seconds", default=None
        )
    )
    zone: str = field(metadata=fields.make_text_rule(_read_zone, default="UTC"))
    starts_at: datetime = field(metadata=_TIME)
    ends_at: datetime | None = field(metadata=_TIME)
    missed: Missed = field(metadata=fields.make_choice_rule(Missed, default=Missed.ONCE))
    overlap: Overlap = field(metadata=fields.make_choice_rule(Overlap, default=Overlap.SKIP))
    jitter: int = field(
        metadata=fields.make_number_rule(0, calendar.MAX_JITTER, "seconds", default=0)
    )
    thread: str = field(default="", metadata=fields.make_text_rule(_read_thread, default=""))

    @property
    def calendar(self) -> Calendar:
        """The times of the schedule."""
        return Calendar(
            cron=self.cron,
            every=self.every,
            zone=self.zone,
            starts_at=self.starts_at,
            ends_at=self.ends_at,
        )

    @property
    def rhythm(self) -> str:
        """The cron expression, or the interval in words."""
        if self.every is None:
            return self.cron
        unit = max(
            (u for u in _UNIT if self.every % _UNIT[u] == 0), key=_UNIT.__getitem__, default=""
        )
        if not unit:
            return f"every {self.every} seconds"
        count = self.every // _UNIT[unit]
        return f"every {unit[:-1]}" if count == 1 else f"every {count} {unit}"

    def fill_input(self, at: datetime) -> Any:
        """Return the input of the run of this time: `{{time}}` and `{{date}}` in its texts become the time."""
        local = at.astimezone(ZoneInfo(self.zone))
        return _fill(self.input, {"time": local.isoformat(), "date": local.date().isoformat()})

    def to_text(self) -> str:
        """Write the definition as JSON, for its MAC."""
        ends_at = None if self.ends_at is None else self.ends_at.astimezone(UTC).isoformat()
        times = {"starts_at": self.starts_at.astimezone(UTC).isoformat(), "ends_at": ends_at}
        return json.dumps({**asdict(self), **times}, ensure_ascii=False, sort_keys=True)


def decode_schedule_definition(text: str) -> ScheduleDefinition:
    """Read a definition that `to_text` wrote."""
    document = json.loads(text)
    ends_at = document["ends_at"]
    return ScheduleDefinition(
        **{
            **document,
            "starts_at": datetime.fromisoformat(document["starts_at"]),
            "ends_at": None if ends_at is None else datetime.fromisoformat(ends_at),
            "missed": Missed(document["missed"]),
            "overlap": Overlap(document["overlap"]),
        }
    )


def read(sent: Mapping[str, object], now: datetime) -> ScheduleDefinition:
    """Return the definition that a person sent, without checking the input against its agent.

    Raise InvalidInput naming the field.
    """
    values = fields.check_all(ScheduleDefinition, sent)
    zone, every = values["zone"], values["every"]
    cron = _read_cron(sent.get("cron") or "", every)
    starts_at = _read_optional_time(sent.get("starts_at"), "starts_at", zone)
    ends_at = _read_optional_time(sent.get("ends_at"), "ends_at", zone)
    if starts_at is None:
        starts_at = now if every is None else now + timedelta(seconds=every)
    starts_at = starts_at.replace(microsecond=0)
    if ends_at is not None and ends_at <= starts_at:
        raise InvalidInput("ends_at", "must be after the start")
    if ends_at is not None and ends_at <= now:
        raise InvalidInput("ends_at", "is in the past")
    if cron:
        try:
            calendar.check_cron(cron, zone, max(starts_at, now))
        except NeverComes as exc:
            raise InvalidInput("cron", str(exc)) from exc
    definition = ScheduleDefinition(**values, cron=cron, starts_at=starts_at, ends_at=ends_at)
    if definition.calendar.find_first_after(now) is None:
        raise InvalidInput("ends_at", "is before the first time")
    return definition


def read_time(value: object, field: str, zone: str, *, in_seconds: bool = True) -> datetime:
    """Return the time in ISO 8601, in whole seconds unless `in_seconds` is false; without an offset one in the zone.

    Raise InvalidInput.
    """
    time = _read_optional_time(value, field, zone)
    if time is None:
        raise InvalidInput(field, "is required")
    return time.replace(microsecond=0) if in_seconds else time


class TimeAct(StrEnum):
    """What a time does."""

    START = "start"
    WAIT = "wait"
    SKIP = "skip"


@dataclass(frozen=True, slots=True, kw_only=True)
class DueTime:
    """What one time does; `reason` says why it is skipped."""

    at: datetime
    act: TimeAct
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Busy:
    """The runs of a schedule that have not ended, and its times that wait.

    `own_running` says that one of the runs is of a time of the schedule, and not of a back-fill.
    """

    running: bool = False
    own_running: bool = False
    waiting: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DueTimes:
    """All due times, the earliest first, and the next time, None if there is none."""

    times: tuple[DueTime, ...]
    next_at: datetime | None


def plan_due(
    schedule: UUID, definition: ScheduleDefinition, next_at: datetime, now: datetime, busy: Busy
) -> DueTimes:
    """Return what the due times do. `next_at` is the first time that no plan has had."""

    def starts(at: datetime) -> datetime:
        return at + compute_delay(schedule, at, definition.jitter)

    limit = MAX_MISSED + definition.jitter // 60 + 1  # times a minute apart may all be delayed
    times = definition.calendar.list_newest_times(next_at, now, limit)
    ready = list(takewhile(lambda at: starts(at) <= now, times))[-MAX_MISSED:]
    if not ready:
        return DueTimes(times=(), next_at=next_at)
    # Times keep their order, so one is held up by longer delays of earlier ones. That is not missed.
    reached_at = dict(zip(ready, accumulate(map(starts, ready), max), strict=True))
    missed = {at for at in ready if reached_at[at] < now - LATE}
    due = _plan_times(definition, ready, missed, busy)
    if ready[0] > next_at and due[0].act is TimeAct.SKIP:
        due[0] = replace(due[0], reason=EARLIER)
    return DueTimes(times=tuple(due), next_at=definition.calendar.find_first_after(ready[-1]))


def start_time(
    schedule: UUID, definition: ScheduleDefinition, next_at: datetime | None
) -> datetime | None:
    """Return when the next time starts its run."""
    return (
        None if next_at is None else next_at + compute_delay(schedule, next_at, definition.jitter)
    )


def _fill(value: Any, words: Mapping[str, str]) -> Any:
    match value:
        case str():
            return _TIME_FIELD.sub(lambda match: words[match[1]], value)
        case list():
            return [_fill(part, words) for part in value]
        case dict():
            return {name: _fill(part, words) for name, part in value.items()}
        case _:
            return value


def _read_cron(cron: object, every: int | None) -> str:
    if every is not None:
        if cron:
            raise InvalidInput("every", "cannot be given together with cron")
        return ""
    expression = " ".join(fields.read_text(cron, "cron").split()).upper()
    if not expression:
        raise InvalidInput("cron", "is required, or an interval")
    return expression


def _read_optional_time(value: object, field: str, zone: str) -> datetime | None:
    if value is None or value == "":
        return None
    try:
        time = datetime.fromisoformat(fields.read_text(value, field).strip())
        time = time if time.tzinfo is not None else time.replace(tzinfo=ZoneInfo(zone))
        time = time.astimezone(UTC)
    except (ValueError, OverflowError) as exc:
        raise InvalidInput(field, "must be a time such as 2026-11-24T09:00") from exc
    if not 2000 <= time.year <= LAST_YEAR:
        raise InvalidInput(field, f"must be between 2000 and {LAST_YEAR}")
    return time


def _plan_times(
    definition: ScheduleDefinition,
    times: list[datetime],
    missed_times: set[datetime],
    busy: Busy,
) -> list[DueTime]:
    due, rule = list[DueTime](), definition.overlap
    for at in times:
        missed = at in missed_times
        runs_once = definition.missed is Missed.ONCE and at == times[-1]
        if missed and not (definition.missed is Missed.ALL or runs_once):
            time = DueTime(at=at, act=TimeAct.SKIP, reason=MISSED)
        elif rule is Overlap.ALLOW or not (busy.running or busy.waiting):
            time = DueTime(at=at, act=TimeAct.START)
        elif rule is Overlap.SKIP and not missed and (busy.own_running or busy.waiting):
            time = DueTime(at=at, act=TimeAct.SKIP, reason=OVERLAPS)
        elif busy.waiting >= MAX_WAITING_TIMES:
            time = DueTime(at=at, act=TimeAct.SKIP, reason=TIMES_FULL)
        else:  # missed times wait for each other
            time = DueTime(at=at, act=TimeAct.WAIT)
        due.append(time)
        if time.act is TimeAct.START:
            busy = replace(busy, running=True, own_running=True)
        elif time.act is TimeAct.WAIT:
            busy = replace(busy, waiting=busy.waiting + 1)
    return due

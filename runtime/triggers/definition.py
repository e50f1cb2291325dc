"""The definition of a schedule: its text, as it is signed, and the checks of a definition that a person sends."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any
from zoneinfo import ZoneInfo

from runtime.core.limits import MAX_KEY
from runtime.errors import InvalidInput
from runtime.triggers import calendar, fields
from runtime.triggers.calendar import Calendar, NeverComes

MAX_ZONE = 64  # characters of the name of a time zone
LAST_YEAR = 2200

_UNIT = {"minutes": 60, "hours": 3600, "days": 86400}
_PLACE = re.compile(r"\{\{ *(time|date) *\}\}")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """One schedule: when it starts which agent on which input. `every` and `jitter` are seconds."""

    name: str
    agent: str
    input: Any
    cron: str
    every: int | None
    zone: str
    starts_at: datetime
    ends_at: datetime | None
    missed: Missed
    overlap: Overlap
    jitter: int
    thread: str = ""

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

    def input_at(self, at: datetime) -> Any:
        """Return the input of the run of this time: `{{time}}` and `{{date}}` in its texts become the time."""
        local = at.astimezone(ZoneInfo(self.zone))
        return _filled(self.input, {"time": local.isoformat(), "date": local.date().isoformat()})


def to_text(one: Definition) -> str:
    """Write a definition as JSON, for its MAC."""
    fields = {
        "name": one.name,
        "agent": one.agent,
        "input": one.input,
        "cron": one.cron,
        "every": one.every,
        "zone": one.zone,
        "starts_at": one.starts_at.astimezone(UTC).isoformat(),
        "ends_at": None if one.ends_at is None else one.ends_at.astimezone(UTC).isoformat(),
        "missed": one.missed,
        "overlap": one.overlap,
        "jitter": one.jitter,
        "thread": one.thread,
    }
    return json.dumps(fields, ensure_ascii=False, sort_keys=True)


def from_text(text: str) -> Definition:
    """Read a definition that `to_text` wrote."""
    found = json.loads(text)
    ends = found["ends_at"]
    return Definition(
        **{
            **found,
            "starts_at": datetime.fromisoformat(found["starts_at"]),
            "ends_at": None if ends is None else datetime.fromisoformat(ends),
            "missed": Missed(found["missed"]),
            "overlap": Overlap(found["overlap"]),
        }
    )


def read(sent: Mapping[str, object], now: datetime) -> Definition:
    """Return the definition that a person sent, without checking the input against its agent.

    Raise InvalidInput naming the field.
    """
    zone = _zone(sent.get("zone", "UTC"))
    cron, every = _rhythm(sent.get("cron") or "", sent.get("every"))
    starts = _moment(sent.get("starts_at"), "starts_at", zone)
    ends = _moment(sent.get("ends_at"), "ends_at", zone)
    if starts is None:
        starts = now if every is None else now + timedelta(seconds=every)
    starts = starts.replace(microsecond=0)
    if ends is not None and ends <= starts:
        raise InvalidInput("ends_at", "must be after the start")
    if ends is not None and ends <= now:
        raise InvalidInput("ends_at", "is in the past")
    if cron:
        try:
            calendar.check_cron(cron, zone, max(starts, now))
        except NeverComes as exc:
            raise InvalidInput("cron", str(exc)) from exc
    found = Definition(
        name=fields.name(sent.get("name")),
        agent=fields.text(sent.get("agent"), "agent"),
        input=fields.json(sent.get("input", {}), "input"),
        cron=cron,
        every=every,
        zone=zone,
        starts_at=starts,
        ends_at=ends,
        missed=fields.choice(sent.get("missed", Missed.ONCE), "missed", Missed),
        overlap=fields.choice(sent.get("overlap", Overlap.SKIP), "overlap", Overlap),
        jitter=fields.whole(sent.get("jitter", 0), "jitter", 0, calendar.MAX_JITTER, "seconds"),
        thread=_thread(sent),
    )
    if found.calendar.first_after(now) is None:
        raise InvalidInput("ends_at", "is before the first time")
    return found


def moment(value: object, field: str, zone: str, *, whole: bool = True) -> datetime:
    """Return the time in ISO 8601, of a `whole` second; without an offset it is a time in the zone.

    Raise InvalidInput.
    """
    found = _moment(value, field, zone)
    if found is None:
        raise InvalidInput(field, "is required")
    return found.replace(microsecond=0) if whole else found


def _thread(sent: Mapping[str, object]) -> str:
    text = fields.text(sent.get("thread") or "", "thread").strip()
    if len(text) > MAX_KEY:
        raise InvalidInput("thread", f"must have at most {MAX_KEY} characters")
    return text


def _filled(value: Any, words: Mapping[str, str]) -> Any:
    match value:
        case str():
            return _PLACE.sub(lambda found: words[found[1]], value)
        case list():
            return [_filled(one, words) for one in value]
        case dict():
            return {name: _filled(one, words) for name, one in value.items()}
        case _:
            return value


def _rhythm(cron: object, every: object) -> tuple[str, int | None]:
    if every is not None:
        if cron:
            raise InvalidInput("every", "cannot be given together with cron")
        return "", fields.whole(every, "every", calendar.MIN_EVERY, calendar.MAX_EVERY, "seconds")
    found = " ".join(fields.text(cron, "cron").split()).upper()
    if not found:
        raise InvalidInput("cron", "is required, or an interval")
    return found, None


def _zone(value: object) -> str:
    name = fields.text(value, "zone").strip()
    try:
        if 0 < len(name) <= MAX_ZONE and ZoneInfo(name).key:
            return name
    except (ValueError, OSError, KeyError):  # no such name, or a path that leads elsewhere
        pass
    raise InvalidInput("zone", "must be a time zone such as Europe/Berlin")


def _moment(value: object, field: str, zone: str) -> datetime | None:
    if value is None or value == "":
        return None
    try:
        found = datetime.fromisoformat(fields.text(value, field).strip())
        found = found if found.tzinfo is not None else found.replace(tzinfo=ZoneInfo(zone))
        found = found.astimezone(UTC)
    except (ValueError, OverflowError) as exc:
        raise InvalidInput(field, "must be a time such as 2026-11-24T09:00") from exc
    if not 2000 <= found.year <= LAST_YEAR:
        raise InvalidInput(field, f"must be between 2000 and {LAST_YEAR}")
    return found

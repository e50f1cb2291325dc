"""What a schedule does at its times: start, wait or skip. Pure.

A time is missed if it came more than a minute ago, for example because no sweeper ran. The result depends on nothing
but the time and the rows of the schedule, and each time is in one plan only.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import accumulate, takewhile
from uuid import UUID

from runtime.triggers.calendar import delay
from runtime.triggers.schedule_definition import Missed, Overlap, ScheduleDefinition

LATE = timedelta(seconds=60)
MAX_MISSED = 100  # missed times that are handled; earlier ones start nothing
MAX_WAITING = 100  # times of one schedule that wait for a run to end

EARLIER = "missed, like all earlier ones"
MISSED = "missed"
OVERLAPS = "an earlier run had not ended"
FULL = f"{MAX_WAITING} times waited already"


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
        return at + delay(schedule, at, definition.jitter)

    limit = MAX_MISSED + definition.jitter // 60 + 1  # times a minute apart may all be delayed
    times = definition.calendar.newest(next_at, now, limit)
    ready = list(takewhile(lambda at: starts(at) <= now, times))[-MAX_MISSED:]
    if not ready:
        return DueTimes(times=(), next_at=next_at)
    # Times keep their order, so one is held up by longer delays of earlier ones. That is not missed.
    reached_at = dict(zip(ready, accumulate(map(starts, ready), max), strict=True))
    due = _plan(definition, ready, lambda at: reached_at[at] < now - LATE, busy)
    if ready[0] > next_at and due[0].act is TimeAct.SKIP:
        due[0] = replace(due[0], reason=EARLIER)
    return DueTimes(times=tuple(due), next_at=definition.calendar.first_after(ready[-1]))


def due_at(
    schedule: UUID, definition: ScheduleDefinition, next_at: datetime | None
) -> datetime | None:
    """Return when the next time starts its run."""
    return None if next_at is None else next_at + delay(schedule, next_at, definition.jitter)


def _plan(
    definition: ScheduleDefinition,
    times: list[datetime],
    is_missed: Callable[[datetime], bool],
    busy: Busy,
) -> list[DueTime]:
    due = list[DueTime]()
    for at in times:
        missed = is_missed(at)
        if missed and not _runs_late(definition.missed, last=at == times[-1]):
            due.append(DueTime(at=at, act=TimeAct.SKIP, reason=MISSED))
            continue
        time = _take_turn(definition.overlap, at, busy, missed=missed)
        due.append(time)
        if time.act is TimeAct.START:
            busy = replace(busy, running=True, own_running=True)
        elif time.act is TimeAct.WAIT:
            busy = replace(busy, waiting=busy.waiting + 1)
    return due


def _runs_late(rule: Missed, *, last: bool) -> bool:
    """Tell whether a missed time starts a run."""
    return rule is Missed.ALL or (rule is Missed.ONCE and last)


def _take_turn(rule: Overlap, at: datetime, busy: Busy, *, missed: bool) -> DueTime:
    """Return what a time does that is not skipped as missed. Missed times wait for each other."""
    if rule is Overlap.ALLOW or not (busy.running or busy.waiting):
        return DueTime(at=at, act=TimeAct.START)
    if rule is Overlap.SKIP and not missed and (busy.own_running or busy.waiting):
        return DueTime(at=at, act=TimeAct.SKIP, reason=OVERLAPS)
    if busy.waiting >= MAX_WAITING:
        return DueTime(at=at, act=TimeAct.SKIP, reason=FULL)
    return DueTime(at=at, act=TimeAct.WAIT)

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
from runtime.triggers.definition import Definition, Missed, Overlap

LATE = timedelta(seconds=60)
MAX_MISSED = 100  # missed times that are looked at; earlier ones start nothing
MAX_WAITING = 100  # times of one schedule that wait for a run to end

EARLIER = "missed, like all earlier ones"
MISSED = "missed"
OVERLAPS = "an earlier run had not ended"
FULL = f"{MAX_WAITING} times waited already"


class Act(StrEnum):
    """What a time does."""

    START = "start"
    WAIT = "wait"
    SKIP = "skip"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one time does; `reason` says why it is skipped."""

    at: datetime
    act: Act
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Busy:
    """The runs of a schedule that have not ended, and its times that wait.

    `own` says that one of the runs is of a time of the schedule, and not of a back-fill.
    """

    running: bool = False
    own: bool = False
    waiting: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The steps of all due times, the earliest first, and the next time, None if there is none."""

    steps: tuple[Step, ...]
    next_at: datetime | None


def due(schedule: UUID, one: Definition, next_at: datetime, now: datetime, busy: Busy) -> Plan:
    """Return what the due times do. `next_at` is the first time that no plan has had."""

    def starts(at: datetime) -> datetime:
        return at + delay(schedule, at, one.jitter)

    most = MAX_MISSED + one.jitter // 60 + 1  # times a minute apart may all be delayed
    times = one.calendar.newest(next_at, now, most)
    ready = list(takewhile(lambda at: starts(at) <= now, times))[-MAX_MISSED:]
    if not ready:
        return Plan(steps=(), next_at=next_at)
    # Times keep their order, so one is held up by longer delays of earlier ones. That is not missed.
    looked_at = dict(zip(ready, accumulate(map(starts, ready), max), strict=True))
    steps = _steps(one, ready, lambda at: looked_at[at] < now - LATE, busy)
    if ready[0] > next_at and steps[0].act is Act.SKIP:
        steps[0] = replace(steps[0], reason=EARLIER)
    return Plan(steps=tuple(steps), next_at=one.calendar.first_after(ready[-1]))


def due_at(schedule: UUID, one: Definition, next_at: datetime | None) -> datetime | None:
    """Return when the next time starts its run."""
    return None if next_at is None else next_at + delay(schedule, next_at, one.jitter)


def _steps(
    one: Definition, times: list[datetime], is_missed: Callable[[datetime], bool], busy: Busy
) -> list[Step]:
    found = list[Step]()
    for at in times:
        missed = is_missed(at)
        if missed and not _counts(one.missed, last=at == times[-1]):
            found.append(Step(at=at, act=Act.SKIP, reason=MISSED))
            continue
        step = _turn(one.overlap, at, busy, missed=missed)
        found.append(step)
        if step.act is Act.START:
            busy = replace(busy, running=True, own=True)
        elif step.act is Act.WAIT:
            busy = replace(busy, waiting=busy.waiting + 1)
    return found


def _counts(rule: Missed, *, last: bool) -> bool:
    """Tell whether a missed time starts a run."""
    return rule is Missed.ALL or (rule is Missed.ONCE and last)


def _turn(rule: Overlap, at: datetime, busy: Busy, *, missed: bool) -> Step:
    """Return the step of a time that is not skipped as missed. Missed times wait for each other."""
    if rule is Overlap.ALLOW or not (busy.running or busy.waiting):
        return Step(at=at, act=Act.START)
    if rule is Overlap.SKIP and not missed and (busy.own or busy.waiting):
        return Step(at=at, act=Act.SKIP, reason=OVERLAPS)
    if busy.waiting >= MAX_WAITING:
        return Step(at=at, act=Act.SKIP, reason=FULL)
    return Step(at=at, act=Act.WAIT)

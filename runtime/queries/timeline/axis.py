"""Computes the time axis of a timeline, on which waiting is compressed, and the time spent on each use.

Each moment has one use, the first that applies: work, waiting for people, for a retry, for a time or event, or for a
worker (idle). Waiting is compressed, so that weeks of it do not hide seconds of work.
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum
from itertools import pairwise

IDLE_SHARE = 2 / 3  # of the time at work: all waiting together gets at most two fifths of the axis


class TimeUse(IntEnum):
    """A use of time; of simultaneous ones the lowest number counts."""

    WORK = 0
    PEOPLE = 1
    RETRY = 2
    WAIT = 3
    IDLE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """A time with one use."""

    use: TimeUse
    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Consecutive time of one use; `x` and `width` are its place on the axis, in percent."""

    use: TimeUse
    start: datetime
    end: datetime
    x: float
    width: float
    shortened: bool

    @property
    def lasted(self) -> timedelta:
        """The duration of the segment."""
        return self.end - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """The segments of a timeline, in order and without gaps."""

    segments: tuple[Segment, ...]

    def at(self, moment: datetime) -> float:
        """Return the place of a moment, in percent from the left."""
        index = bisect_right(self.segments, moment, key=lambda segment: segment.start) - 1
        if index < 0:
            return 0.0
        segment = self.segments[index]
        if moment >= segment.end:
            return segment.x + segment.width
        return segment.x + segment.width * ((moment - segment.start) / segment.lasted)

    def spent(self, use: TimeUse) -> timedelta:
        """Return the total time of one use."""
        of_use = (segment.lasted for segment in self.segments if segment.use is use)
        return sum(of_use, timedelta())

    @property
    def shortened(self) -> tuple[Segment, ...]:
        """The segments whose time is compressed."""
        return tuple(segment for segment in self.segments if segment.shortened)


def axis(periods: Iterable[Period], start: datetime, end: datetime) -> Axis:
    """Return the axis from `start` to `end`."""
    parts = _parts(list(periods), start, end)
    work = sum((to - since).total_seconds() for use, since, to in parts if use is TimeUse.WORK)
    idle = sum(1 for use, _, _ in parts if use is not TimeUse.WORK)
    cap = (work or 1.0) * IDLE_SHARE / idle if idle else 0.0
    widths = []
    for use, since, to in parts:
        lasted = (to - since).total_seconds()
        widths.append(lasted if use is TimeUse.WORK else min(lasted, cap))
    total = sum(widths) or 1.0
    segments, x = [], 0.0
    for (use, since, to), weight in zip(parts, widths, strict=True):
        width = 100 * weight / total
        shortened = use is not TimeUse.WORK and weight < (to - since).total_seconds()
        segments.append(
            Segment(use=use, start=since, end=to, x=x, width=width, shortened=shortened)
        )
        x += width
    return Axis(segments=tuple(segments))


def _parts(
    periods: list[Period], start: datetime, end: datetime
) -> list[tuple[TimeUse, datetime, datetime]]:
    """Return consecutive times with their use; neighbours of one use are merged."""
    changes: dict[datetime, list[tuple[TimeUse, int]]] = {start: [], max(start, end): []}
    for period in periods:
        since, to = max(period.start, start), min(period.end, end)
        if since < to:
            changes.setdefault(since, []).append((period.use, 1))
            changes.setdefault(to, []).append((period.use, -1))
    going = dict.fromkeys(TimeUse, 0)
    parts: list[tuple[TimeUse, datetime, datetime]] = []
    for since, to in pairwise(sorted(changes)):
        for use, more in changes[since]:
            going[use] += more
        use = next((use for use in TimeUse if going[use]), TimeUse.IDLE)
        if parts and parts[-1][0] is use:
            parts[-1] = (use, parts[-1][1], to)
        else:
            parts.append((use, since, to))
    return parts

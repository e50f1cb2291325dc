"""The timeline of a run: its spans in tree order, each with its place on the time axis, and the map of these rows."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum, StrEnum
from itertools import pairwise
from math import ceil

from runtime.reads.trace.calls import derive_facts
from runtime.reads.trace.fold import Trace
from runtime.reads.trace.span import Bar, Span, SpanKind, SpanResult, SpanState, Usage

IDLE_SHARE = 2 / 3  # of the time at work: all waiting together gets at most two fifths of the axis
MAX_TICKS = 8
LABEL = 24  # percent: the width of the longest label, such as `// 12 min 31 s`
MIN_APART = 28  # percent between the middles of two labels
MAX_BREAKS = 12

# Seconds between two ticks.
STEPS = (
    *(0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30),
    *(60, 120, 300, 600, 1_200, 1_800),
    *(3_600, 7_200, 21_600, 43_200, 86_400, 604_800),
)
MIN_WIDTH_PERCENT = 0.35  # so that short rows stay visible
ROWS = 100  # on one page, without the agents above them

_WAITS = frozenset(SpanKind) - {SpanKind.AGENT, SpanKind.MODEL, SpanKind.TOOL}
_OF_PEOPLE = frozenset({SpanKind.PERSON, SpanKind.PAUSE, SpanKind.MESSAGE})


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

    @property
    def left(self) -> str:
        """Its place as an attribute of an SVG element."""
        return f"{self.x:.2f}%"

    @property
    def breadth(self) -> str:
        """Its width as an attribute of an SVG element."""
        return f"{self.width:.2f}%"

    @property
    def center(self) -> float:
        """The place of its label, in percent: its middle, but not so near to an edge that the label is cut."""
        return min(max(self.x + self.width / 2, LABEL / 2), 100 - LABEL / 2)

    @property
    def middle(self) -> str:
        """The place of its label as an attribute of an SVG element."""
        return f"{self.center:.2f}%"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A labelled moment on the axis: its place as an attribute of an SVG element, and the time since the start."""

    x: str
    since: timedelta


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

    def sum_use(self, use: TimeUse) -> timedelta:
        """Return the total time of one use."""
        of_use = (segment.lasted for segment in self.segments if segment.use is use)
        return sum(of_use, timedelta())

    @property
    def shortened(self) -> tuple[Segment, ...]:
        """The segments whose time is compressed."""
        return tuple(segment for segment in self.segments if segment.shortened)

    @property
    def breaks(self) -> tuple[Segment, ...]:
        """The segments to mark as breaks: the longest ones, in order, if there are many."""
        longest = sorted(self.shortened, key=lambda segment: segment.lasted)[-MAX_BREAKS:]
        return tuple(sorted(longest, key=lambda segment: segment.start))

    @property
    def named_breaks(self) -> tuple[Segment, ...]:
        """The breaks with a label, the longest first: wide enough, and far enough from each other."""
        labelled = list[Segment]()
        for segment in sorted(self.breaks, key=lambda segment: segment.lasted, reverse=True):
            is_wide = segment.width >= MIN_APART / 3
            if is_wide and all(
                abs(segment.center - other.center) >= MIN_APART for other in labelled
            ):
                labelled.append(segment)
        return tuple(labelled)

    @property
    def ticks(self) -> tuple[Tick, ...]:
        """Moments in a round distance of time, outside of compressed time and far enough from each other."""
        drawn = [segment for segment in self.segments if not segment.shortened]
        visible = sum((segment.lasted for segment in drawn), timedelta()).total_seconds()
        if not visible:
            return ()
        step = next((seconds for seconds in STEPS if visible / seconds <= MAX_TICKS), STEPS[-1])
        break_middles = [segment.center for segment in self.named_breaks]
        start, last, ticks = self.segments[0].start, -float(MIN_APART), list[Tick]()
        for segment in drawn:
            first = ceil((segment.start - start).total_seconds() / step)
            for number in range(first, first + 2 * MAX_TICKS):
                moment = start + timedelta(seconds=number * step)
                x = self.at(moment)
                if moment > segment.end:
                    break
                apart = all(abs(x - middle) >= MIN_APART for middle in (last, *break_middles))
                if apart and x <= 100 - MIN_APART / 3:
                    ticks.append(Tick(x=f"{x:.2f}%", since=moment - start))
                    last = x
        return tuple(ticks)


def build_axis(periods: Iterable[Period], start: datetime, end: datetime) -> Axis:
    """Return the axis from `start` to `end`."""
    parts = _merge_periods(list(periods), start, end)
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


_USES = {
    SpanKind.QUEUE: TimeUse.IDLE,
    SpanKind.AGENT: TimeUse.IDLE,
    SpanKind.MODEL: TimeUse.WORK,
    SpanKind.TOOL: TimeUse.WORK,
    SpanKind.PERSON: TimeUse.PEOPLE,
    SpanKind.PAUSE: TimeUse.PEOPLE,
    SpanKind.MESSAGE: TimeUse.IDLE,
    SpanKind.WAIT: TimeUse.RETRY,
    SpanKind.AWAIT: TimeUse.WAIT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """`until` is the end of the run, or now. The properties after `lasted` add up to it."""

    rows: tuple[Span, ...]
    axis: Axis
    start: datetime
    until: datetime

    @property
    def lasted(self) -> timedelta:
        """The time from start to end, or until now."""
        return self.until - self.start

    @property
    def working(self) -> timedelta:
        """The time at work."""
        return self.axis.sum_use(TimeUse.WORK)

    @property
    def people(self) -> timedelta:
        """The time spent waiting for people."""
        return self.axis.sum_use(TimeUse.PEOPLE)

    @property
    def retrying(self) -> timedelta:
        """The time spent waiting for retries."""
        return self.axis.sum_use(TimeUse.RETRY)

    @property
    def waiting(self) -> timedelta:
        """The time spent waiting for a time or an external event."""
        return self.axis.sum_use(TimeUse.WAIT)

    @property
    def idle(self) -> timedelta:
        """The remaining time, such as waiting for a worker."""
        return self.axis.sum_use(TimeUse.IDLE)

    @property
    def retries(self) -> int:
        """The number of attempts after a first one."""
        return sum(1 for row in self.rows if row.attempt > 1)

    @property
    def steps(self) -> int:
        """The number of steps."""
        return len({row.step for row in self.rows if row.step})

    @property
    def gates(self) -> tuple[Span, ...]:
        """The rows of gates."""
        return tuple(row for row in self.rows if row.for_people)


def build_timeline(trace: Trace, *, until: datetime) -> Timeline:
    """Place the spans of a run on an axis from its start."""
    rows, start, until = trace.list_spans(), trace.start, max(until, trace.start)
    drawn = build_axis(
        (
            Period(use=_USES[row.kind], start=row.start, end=row.end or until)
            for row in rows
            if row.start is not None
        ),
        start,
        until,
    )
    facts = derive_facts(call for frame in trace.frames.values() for call in frame.calls)
    for index, row in enumerate(rows):
        _identify_row(row, index, until)
        row.fact = facts.get(row.step, "")
        if row.start is not None:
            row.offset = max(row.start - start, timedelta())
            x = drawn.at(row.start)
            width = max(drawn.at(row.end or until) - x, MIN_WIDTH_PERCENT)
            x = min(x, 100 - width)
            row.bar = Bar(x=f"{x:.2f}%", width=f"{width:.2f}%")
    return Timeline(rows=tuple(rows), axis=drawn, start=start, until=until)


def list_step_rows(trace: Trace, step: str, *, until: datetime) -> tuple[Span, ...]:
    """Return the rows of one step with their ids and durations, without those of the others."""
    rows = [(index, row) for index, row in enumerate(trace.list_spans()) if row.step == step]
    for index, row in rows:
        _identify_row(row, index, max(until, trace.start))
    return tuple(row for _, row in rows)


def _identify_row(row: Span, index: int, until: datetime) -> None:
    """Set the id of a row, and how long it lasted."""
    row.id = f"r{index}"
    if row.start is not None:
        row.lasted = max((row.end or until) - row.start, timedelta())


def _merge_periods(
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
        for use, change in changes[since]:
            going[use] += change
        use = next((use for use in TimeUse if going[use]), TimeUse.IDLE)
        if parts and parts[-1][0] is use:
            parts[-1] = (use, parts[-1][1], to)
        else:
            parts.append((use, since, to))
    return parts


# The map of a run: the rows of its timeline as a tree, filtered, searched, and cut into pages


class RowFilter(StrEnum):
    """A choice of rows."""

    FAILED = "failed"
    WAITING = "waiting"
    PEOPLE = "people"

    def is_chosen(self, span: Span) -> bool:
        """Tell whether the span is one of these."""
        match self:
            case RowFilter.FAILED:
                return span.result is SpanResult.BAD and not span.for_people
            case RowFilter.WAITING:
                return span.kind in _WAITS and span.start is not None and span.end is None
            case RowFilter.PEOPLE:
                return span.kind in _OF_PEOPLE


@dataclass(frozen=True, slots=True, kw_only=True)
class MapRow:
    """One row of the tree.

    `is_parent` says that the next rows are below it, and `closes` counts the levels that end with it. A row that
    `leads` is only there because rows below it are. `usage` is that of its reply, or of all replies of an agent.
    """

    span: Span
    is_parent: bool
    leads: bool
    closes: range
    usage: Usage | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMap:
    """The rows of a timeline. `parents` has the index of the agent above each, -1 at the top."""

    spans: Sequence[Span]
    parents: Sequence[int]
    usages: Sequence[Usage | None]

    def count(self, choice: RowFilter) -> int:
        """Count the rows that a filter chooses."""
        return sum(choice.is_chosen(span) for span in self.spans)

    def select_rows(self, choice: RowFilter | None, text: str) -> Sequence[int]:
        """Return the indexes of the rows that the filter chooses and that have the text."""
        text = text.casefold()
        return [
            index
            for index, span in enumerate(self.spans)
            if (choice is None or choice.is_chosen(span)) and text in span.words.casefold()
        ]

    def rows(self, indexes: Sequence[int]) -> tuple[MapRow, ...]:
        """Return these rows in order, each with the agents above it."""
        selected, with_agents = frozenset(indexes), set(indexes)
        for index in indexes:
            agent = self.parents[index]
            while agent >= 0 and agent not in with_agents:
                with_agents.add(agent)
                agent = self.parents[agent]
        levels = {-1: -1}
        for index in sorted(with_agents):
            levels[index] = levels[self.parents[index]] + 1
        rows = []
        for index, following in pairwise([*levels, 0][1:]):  # 0 after the last: it follows no row
            level, next_level = levels[index], levels[following] if following else 0
            rows.append(
                MapRow(
                    span=self.spans[index],
                    is_parent=next_level > level,
                    leads=index not in selected,
                    closes=range(level - next_level),
                    usage=self.usages[index],
                )
            )
        return tuple(rows)


def build_map(spans: Sequence[Span]) -> StepMap:
    """Return the map of the rows of a timeline, which are in tree order."""
    parents: list[int] = []
    usages: list[Usage | None] = [span.usage for span in spans]
    agents: list[int] = []
    for index, span in enumerate(spans):
        while agents and spans[agents[-1]].depth >= span.depth:
            agents.pop()
        parents.append(agents[-1] if agents else -1)
        if span.usage is not None:
            for agent in agents:
                usages[agent] = span.usage.add_usage(usages[agent])
        if span.kind is SpanKind.AGENT and span.state is not SpanState.NEW_VERSION:
            agents.append(index)
    return StepMap(spans=spans, parents=parents, usages=usages)

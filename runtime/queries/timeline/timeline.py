"""The timeline of a run: its spans in tree order, each with its place on the time axis."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from runtime.queries.spans.fold import Trace
from runtime.queries.spans.span import Bar, Span
from runtime.queries.spans.states import SpanKind
from runtime.queries.timeline.axis import Axis, Period, TimeUse, axis

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

MIN_WIDTH_PERCENT = 0.35  # so that short rows stay visible


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
        return self.axis.spent(TimeUse.WORK)

    @property
    def people(self) -> timedelta:
        """The time spent waiting for people."""
        return self.axis.spent(TimeUse.PEOPLE)

    @property
    def retrying(self) -> timedelta:
        """The time spent waiting for retries."""
        return self.axis.spent(TimeUse.RETRY)

    @property
    def waiting(self) -> timedelta:
        """The time spent waiting for a time or an external event."""
        return self.axis.spent(TimeUse.WAIT)

    @property
    def idle(self) -> timedelta:
        """The remaining time, such as waiting for a worker."""
        return self.axis.spent(TimeUse.IDLE)

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

    def of_step(self, step: str) -> tuple[Span, ...]:
        """Return the rows of a step."""
        return tuple(row for row in self.rows if row.step == step)


def timeline_of(trace: Trace, *, until: datetime) -> Timeline:
    """Place the spans of a run on an axis from its start."""
    rows, start, until = trace.spans(), trace.start, max(until, trace.start)
    drawn = axis(
        (
            Period(use=_USES[row.kind], start=row.start, end=row.end or until)
            for row in rows
            if row.start is not None
        ),
        start,
        until,
    )
    for index, row in enumerate(rows):
        row.id = f"r{index}"
        if row.start is not None:
            end = row.end or until
            row.offset = max(row.start - start, timedelta())
            row.lasted = max(end - row.start, timedelta())
            row.bar = _bar(drawn, row.start, end)
    return Timeline(rows=tuple(rows), axis=drawn, start=start, until=until)


def _bar(axis: Axis, start: datetime, end: datetime) -> Bar:
    left = axis.at(start)
    width = max(axis.at(end) - left, MIN_WIDTH_PERCENT)
    left = min(left, 100 - width)
    return Bar(x=f"{left:.2f}%", width=f"{width:.2f}%")

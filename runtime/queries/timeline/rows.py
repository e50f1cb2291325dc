"""The rows of a timeline, as data: one for each span of time and each message."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from runtime.core.enums import GateKind, Verdict
from runtime.queries.timeline.axis import Axis, TimeUse


class RowKind(StrEnum):
    """The kind of a row."""

    QUEUE = "queue"  # the run waits for its first worker
    AGENT = "agent"  # a frame, from its opening to its end
    MODEL = "model"  # one attempt at one model call
    TOOL = "tool"  # one attempt at one tool call, or a call that was never started
    PERSON = "person"  # a gate
    PAUSE = "pause"  # a person paused the run
    MESSAGE = "message"  # a message of a person, until it is delivered
    WAIT = "wait"  # the time between two attempts
    AWAIT = "await"  # a call that waits for a time or an event


USES = {
    RowKind.QUEUE: TimeUse.IDLE,
    RowKind.AGENT: TimeUse.IDLE,
    RowKind.MODEL: TimeUse.WORK,
    RowKind.TOOL: TimeUse.WORK,
    RowKind.PERSON: TimeUse.PEOPLE,
    RowKind.PAUSE: TimeUse.PEOPLE,
    RowKind.MESSAGE: TimeUse.IDLE,
    RowKind.WAIT: TimeUse.RETRY,
    RowKind.AWAIT: TimeUse.WAIT,
}


class RowResult(StrEnum):
    """The result of a row."""

    OPEN = "open"  # still running
    DONE = "done"
    BAD = "bad"
    OVER = "over"  # ended, neither good nor bad


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A place on the axis, in percent, as attributes of an SVG element."""

    x: str
    width: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row. `step` groups rows: all attempts at one call, and its gates, are one step.

    `start` is None for a call that never began; `end` is None while it runs. `by`, or the time `until`, follows
    `words`. `error` is why an attempt had no result, `reason` the text of a person. `model` is the called model,
    `partial` its interrupted reply, `said` the error text of its provider, for admins.
    """

    id: str
    step: str
    kind: RowKind
    name: str
    depth: int
    words: str
    tone: RowResult
    start: datetime | None
    end: datetime | None
    attempt: int
    by: str
    error: str
    reason: str
    gate: UUID | None
    gate_kind: GateKind | None
    verdict: Verdict | None
    position: int
    approval: UUID | None
    until: datetime | None
    model: str
    partial: str
    said: str
    offset: timedelta | None
    lasted: timedelta | None
    bar: Bar | None

    @property
    def provider(self) -> str:
        """The called model, empty for a script."""
        return "" if self.model.startswith("scripted:") else self.model

    @property
    def for_people(self) -> bool:
        return self.kind is RowKind.PERSON


MIN_WIDTH_PERCENT = 0.35  # so that short rows stay visible


def bar(scale: Axis, start: datetime, end: datetime) -> Bar:
    left = scale.at(start)
    width = max(scale.at(end) - left, MIN_WIDTH_PERCENT)
    left = min(left, 100 - width)
    return Bar(x=f"{left:.2f}%", width=f"{width:.2f}%")

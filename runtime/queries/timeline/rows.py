"""The rows of a timeline, as data: one for each thing that took time, or was said to."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from runtime.core.enums import GateKind, Verdict
from runtime.queries.timeline.axis import Axis, TimeUse


class RowKind(StrEnum):
    """What a row is about."""

    QUEUE = "queue"  # the run waits for its first worker
    AGENT = "agent"  # a frame, from its opening to its end
    MODEL = "model"  # one attempt at one model call
    TOOL = "tool"  # one attempt at one tool call, or a call that was never started
    PERSON = "person"  # a gate
    PAUSE = "pause"  # somebody holds the run up
    MESSAGE = "message"  # what somebody wrote, until it is heard
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
    """How it came out."""

    OPEN = "open"  # it goes on
    DONE = "done"
    BAD = "bad"
    OVER = "over"  # it is over, and neither good nor bad


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A place on the scale, in percent, as an attribute of an SVG element."""

    x: str
    width: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row. `step` is what it belongs to: all attempts at one call, and its gates, are one step.

    `start` is None for a call that never began; `end` is None while it goes on. `by`, or the time
    `until`, follows `words`.
    `error` is why an attempt had no result, `reason` what a person wrote. `model` is the one that was
    asked, `partial` its reply up to where it broke off, `said` its provider's error text, for admins.
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
        """The model over the network that was asked; a script is the agent itself and says nothing more."""
        return "" if self.model.startswith("scripted:") else self.model

    @property
    def for_people(self) -> bool:
        return self.kind is RowKind.PERSON


MIN_WIDTH_PERCENT = 0.35  # percent: what takes no time is still seen


def bar(scale: Axis, start: datetime, end: datetime) -> Bar:
    left = scale.at(start)
    width = max(scale.at(end) - left, MIN_WIDTH_PERCENT)
    left = min(left, 100 - width)
    return Bar(x=f"{left:.2f}%", width=f"{width:.2f}%")

"""Folds a journal into a timeline: model calls, tool calls, gates, waits and sub-agents, with start and duration.

A model call starts when its frame is opened or the last call of its turn is settled. No entry records that, so the
entry that caused it gives the time.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from runtime.core import events as e
from runtime.core.errors import CoreError
from runtime.core.ids import ROOT, call_id, depth_of
from runtime.core.machine.forks import state_of
from runtime.queries.journal import JournalLine
from runtime.queries.redaction import redacted
from runtime.queries.timeline.axis import (
    Axis,
    Span,
    TimeUse,
    scale,
)
from runtime.queries.timeline.forked import track
from runtime.queries.timeline.frames import FrameSpans
from runtime.queries.timeline.rows import (
    USES,
    Row,
    RowKind,
    RowResult,
    bar,
)
from runtime.queries.timeline.spans import GateFacts, SpanBuilder

__all__ = ["GateFacts", "Timeline", "timeline_of"]

_UNHEARD = "queued, from"
MIN_WAIT_SHOWN = timedelta(seconds=1)  # shorter waits for a worker have no row


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """`until` is the end of the run, or now. The properties after `lasted` add up to it."""

    rows: tuple[Row, ...]
    scale: Axis
    start: datetime
    until: datetime

    @property
    def lasted(self) -> timedelta:
        return self.until - self.start

    @property
    def working(self) -> timedelta:
        return self.scale.spent(TimeUse.WORK)

    @property
    def people(self) -> timedelta:
        return self.scale.spent(TimeUse.PEOPLE)

    @property
    def retrying(self) -> timedelta:
        return self.scale.spent(TimeUse.RETRY)

    @property
    def waiting(self) -> timedelta:
        return self.scale.spent(TimeUse.WAIT)

    @property
    def idle(self) -> timedelta:
        return self.scale.spent(TimeUse.IDLE)

    @property
    def retries(self) -> int:
        return sum(1 for row in self.rows if row.attempt > 1)

    @property
    def steps(self) -> int:
        return len({row.step for row in self.rows if row.step})

    @property
    def gates(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.for_people)

    def of_step(self, step: str) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.step == step)


def timeline_of(
    lines: Iterable[JournalLine], *, gates: dict[UUID, GateFacts], start: datetime, until: datetime
) -> Timeline:
    """Fold lines into a timeline. `gates` has the facts that are not in the journal."""
    fold = _Fold(gates, start)
    for line in lines:
        if line.entry is not None:
            fold.at, fold.position = line.entry.at, line.position
            for event in line.entry.events:
                fold.take(event)
    spans = fold.spans()
    until = max(until, start)
    drawn = scale(_spans(spans, until), start, until)
    return Timeline(
        rows=tuple(_row(span, index, drawn, start, until) for index, span in enumerate(spans)),
        scale=drawn,
        start=start,
        until=until,
    )


class _Fold:
    """The frames so far, each with its spans."""

    def __init__(self, gates: dict[UUID, GateFacts], start: datetime) -> None:
        self.frames: dict[str, FrameSpans] = {}
        self.at = start
        self.position = 0
        self._gates = gates
        self._ending = False
        self._began = start
        self._pauses: list[SpanBuilder] = []
        self._messages: list[SpanBuilder] = []
        self._queue: SpanBuilder | None = SpanBuilder(
            kind=RowKind.QUEUE, step="", name="", depth=0, start=start, words="waits for a worker"
        )

    def take(self, event: e.Event) -> None:
        match event:
            case e.RunStarted() | e.BudgetExceeded() | e.BudgetGranted():
                return
            case e.FrameOpened():
                self._opened(event)
            case e.Forked():
                self._forked(event)
            case e.Exported():
                self._ended("exported", RowResult.OVER)
            case e.Imported():
                for left in self.frames.values():
                    left.reopen()
            case e.Retried():
                self._ending = False
                for failed in self.frames.values():
                    failed.retried(self.at)
            case e.Cancelling():
                self._ending = True
            case e.Paused():
                self._paused(event)
            case e.Resumed():
                self._go_on("paused by")
            case e.MessageReceived():
                self._received(event.by, event.text)
            case e.Completed():
                self._ended("answered", RowResult.DONE)
            case e.Failed():
                self._ended("failed", RowResult.BAD)
            case e.Cancelled():
                self._ended("cancelled", RowResult.OVER)
            case _:
                frame = self.frames.get(event.frame)
                if frame is not None:
                    self._frame_event(frame, event)

    def spans(self) -> list[SpanBuilder]:
        """Return all spans in tree order: a frame, then its steps, with a child frame at its call."""
        spans = [self._queue] if self._queue is not None else []
        spans += [*self._pauses, *self._messages]
        children = {frame.id for frame in self.frames.values() if frame.parent in self.frames}
        for frame in self.frames.values():
            if frame.id not in children:
                spans += frame.spans(self.frames, set())
        return spans

    def _forked(self, event: e.Forked) -> None:
        self._queue = None
        try:
            copied = state_of(event)
        except CoreError:
            return
        for message in copied.unheard:
            self._received(message.by, message.text)
        for frame in copied.frames.values():
            self.frames[frame.id] = track(frame, self.at)

    def _opened(self, event: e.FrameOpened) -> None:
        if self._queue is not None:
            self._queue.finish(self.at, "waited for a worker", RowResult.OVER)
            if self.at - self._began < MIN_WAIT_SHOWN:
                self._queue = None
        frame = FrameSpans(
            id=event.frame, parent=event.parent, agent=event.agent, depth=depth_of(event.frame)
        )
        frame.open(self.at)
        self.frames[frame.id] = frame
        parent = self.frames.get(event.parent or "")
        if parent is not None and event.call in parent.calls:
            parent.calls[event.call].child = frame.id

    def _frame_event(
        self, frame: FrameSpans, event: e.FrameEvent | e.CallEvent | e.WaitEvent
    ) -> None:
        match event:
            case e.ModelReplied():
                self._heard(event.heard)  # only the root's model receives messages
                names = {call_id(frame.turn + 1, i): p.tool for i, p in enumerate(event.calls)}
                frame.replied(self.at, event.model, names)
                if frame.answered and frame.id == ROOT and self._unheard():
                    frame.ask(self.at)
            case e.Compacted():
                frame.compacted(self.at, event.model)
            case e.ModelFailed():
                frame.model_failed(self.at, event)
            case e.AgentChanged():
                frame.changed(self.at)
            case e.FrameClosed():
                frame.close(self.at, event.outcome)
                self._settle_parent(frame)
            case e.RetryScheduled(call=None):
                frame.model_retries(self.at, event)
            case e.WaitEnded(call=None):
                frame.model_asked_again(self.at)
            case e.GateOpened(call="") | e.GateDecided(call="") | e.GateClosed(call=""):
                frame.halt(event, self.at, self.position, self._gates)
            case _:
                call = frame.calls.get(event.call or "")
                if call is not None:
                    call.take(event, self.at, self.position, self._gates)
                    self._next_turn(frame)

    def _settle_parent(self, frame: FrameSpans) -> None:
        parent = self.frames.get(frame.parent or "")
        if parent is None:
            return
        for call in parent.calls.values():
            if call.child == frame.id:
                call.settled = True
        self._next_turn(parent)

    def _next_turn(self, frame: FrameSpans) -> None:
        if not self._ending and frame.waits_for_model():
            frame.ask(self.at)

    def _paused(self, event: e.Paused) -> None:
        span = SpanBuilder(
            kind=RowKind.PAUSE, step="", name="", depth=0, start=self.at, words="paused by"
        )
        span.by, span.reason = event.by, redacted(event.reason)
        self._pauses.append(span)

    def _go_on(self, words: str) -> None:
        for span in self._pauses:
            span.finish(self.at, words, RowResult.OVER)

    def _received(self, by: str, text: str) -> None:
        """Add a message. The model of a root that has answered is called again."""
        root = self.frames.get(ROOT)
        if root is not None and root.answered:
            root.ask(self.at)
        span = SpanBuilder(
            kind=RowKind.MESSAGE, step="", name="", depth=0, start=self.at, words=_UNHEARD
        )
        span.by, span.reason = by, redacted(text)
        self._messages.append(span)

    def _heard(self, count: int) -> None:
        for span in self._unheard()[:count]:
            span.finish(self.at, "delivered, from", RowResult.OVER)

    def _unheard(self) -> list[SpanBuilder]:
        return [span for span in self._messages if span.end is None]

    def _ended(self, words: str, tone: RowResult) -> None:
        self._go_on("ended with the run")
        for span in self._unheard():
            span.finish(self.at, "not delivered, from", RowResult.OVER)
        for frame in self.frames.values():
            root = frame.parent is None
            frame.end(
                self.at, words if root else "ended with the run", tone if root else RowResult.OVER
            )


def _spans(spans: list[SpanBuilder], until: datetime) -> list[Span]:
    return [
        Span(use=USES[span.kind], start=span.start, end=span.end or until)
        for span in spans
        if span.start is not None
    ]


def _row(span: SpanBuilder, index: int, drawn: Axis, began: datetime, until: datetime) -> Row:
    end = span.end or until
    return Row(
        id=f"r{index}",
        step=span.step,
        kind=span.kind,
        name=span.name,
        depth=span.depth,
        words=span.words,
        tone=span.tone,
        start=span.start,
        end=span.end,
        attempt=span.attempt,
        by=span.by,
        error=span.error,
        reason=span.reason,
        gate=span.gate,
        gate_kind=span.gate_kind,
        verdict=span.verdict,
        position=span.position,
        approval=span.approval,
        until=span.until,
        model=span.model,
        partial=span.partial,
        said=span.said,
        offset=None if span.start is None else max(span.start - began, timedelta()),
        lasted=None if span.start is None else max(end - span.start, timedelta()),
        bar=None if span.start is None else bar(drawn, span.start, end),
    )

"""Builds the spans of one call while a journal is folded into a timeline."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import assert_never
from uuid import UUID

from runtime.core import events as e
from runtime.core.enums import Verdict
from runtime.queries.redaction import redacted
from runtime.queries.timeline.rows import RowKind, RowResult
from runtime.queries.timeline.spans import GateFacts, SpanBuilder

_STARTS_NOTHING = frozenset({Verdict.DENY, Verdict.EXPIRE, Verdict.HAPPENED, Verdict.GIVE_UP})


def awaited(event: e.WaitStarted) -> str:
    """Describe the event that a call waits for; empty if it only waits for a time."""
    if not event.event:
        return ""
    match = json.dumps(redacted(event.match), ensure_ascii=False)
    return event.event if match == "{}" else f"{event.event} with {match}"


@dataclass(slots=True, kw_only=True)
class CallSpans:
    """One call: its gates, its attempts, and the waits between them, in order."""

    step: str
    tool: str
    depth: int
    spans: list[SpanBuilder] = field(default_factory=list)
    child: str | None = None
    settled: bool = False
    words: str = "proposed, not checked yet"

    def take(
        self,
        event: e.CallEvent | e.WaitEvent,
        at: datetime,
        position: int,
        gates: Mapping[UUID, GateFacts],
    ) -> None:
        match event:
            case e.CallAdmitted():
                self.words = "about to start"
            case e.GateOpened():
                self._gated(event, at, position, gates)
            case e.GateDecided():
                self._decided(event, at, gates)
            case e.GateClosed():
                self._closed(event, at)
            case e.ToolStarted():
                self._add(RowKind.TOOL, event.at, "under way", attempt=event.attempt)
            case e.ToolReturned():
                self.settled = True
                self._last(RowKind.TOOL, at, "done", RowResult.DONE)
            case e.CallRefused():
                self.settled = True
                self._add(RowKind.TOOL, at, "").finish(
                    at, "refused, it cannot be made", RowResult.BAD, error=event.reason
                )
            case e.ToolFailed():
                self.settled = True
                self._last(RowKind.TOOL, at, "failed", RowResult.BAD, error=event.error)
            case e.OutcomeUnknown():
                self._last(
                    RowKind.TOOL, at, "its outcome was lost", RowResult.BAD, error=event.error
                )
            case e.OutcomeArrived():
                self._arrived(event, at)
            case e.RetryScheduled():
                self._retries(event, at)
            case e.WaitStarted():
                self._waits(event, at)
            case e.WaitEnded():
                self._waited(event, at)
            case _:
                assert_never(event)

    def end(self, at: datetime, words: str) -> None:
        for span in self.spans:
            span.finish(at, words, RowResult.OVER)
        self.words = "not started: the run was ended first"

    def shown(self) -> list[SpanBuilder]:
        """Return the spans, or one placeholder for a call that has not started."""
        if self.spans or self.child:
            return self.spans
        return [self._span(RowKind.TOOL, None, self.words)]

    def _gated(
        self, event: e.GateOpened, at: datetime, position: int, gates: Mapping[UUID, GateFacts]
    ) -> None:
        self._add(RowKind.PERSON, at, "").gate_opened(event, position, gates)

    def _decided(self, event: e.GateDecided, at: datetime, gates: Mapping[UUID, GateFacts]) -> None:
        for span in self.spans:
            if span.gate == event.gate:
                span.gate_decided(event, at, gates)
        self.settled = event.verdict in _STARTS_NOTHING

    def _closed(self, event: e.GateClosed, at: datetime) -> None:
        for span in self.spans:
            if span.gate == event.gate:
                span.gate_closed(event, at)

    def _arrived(self, event: e.OutcomeArrived, at: datetime) -> None:
        self.settled = True
        done = event.outcome == "returned"
        words, tone = ("done", RowResult.DONE) if done else ("failed", RowResult.BAD)
        asked = [span for span in self.spans if span.gate is not None and span.gate == event.gate]
        for span in asked or [self._add(RowKind.TOOL, at, "")]:
            span.finish(at, f"settled by its late outcome: {words}", tone, error=event.error)

    def _retries(self, event: e.RetryScheduled, at: datetime) -> None:
        words = "its worker was lost" if event.cause == "lost" else "failed, tried again"
        self._last(RowKind.TOOL, at, words, RowResult.BAD, error=event.error)
        if event.until is not None and event.until > at:
            self._add(RowKind.WAIT, at, "tries again at").until = event.until

    def _waits(self, event: e.WaitStarted, at: datetime) -> None:
        span = self._add(
            RowKind.AWAIT, at, "waits for an event until" if event.event else "waits until"
        )
        span.until, span.reason = event.until, awaited(event)

    def _waited(self, event: e.WaitEnded, at: datetime) -> None:
        match event.outcome:
            case "again":
                self._last(RowKind.WAIT, at, "waited before the next attempt", RowResult.OVER)
            case "arrived":
                self.settled = True
                self._last(RowKind.AWAIT, at, "its event came", RowResult.DONE)
            case "timed_out":
                self.settled = True
                self._last(RowKind.AWAIT, at, "its time came", RowResult.OVER)
            case "refused":
                self.settled = True
                self._add(RowKind.AWAIT, at, "").finish(
                    at, "there is nothing to wait for", RowResult.BAD, error=str(event.result)
                )
            case "closed":
                self._last(RowKind.AWAIT, at, "ended with the run", RowResult.OVER)
            case _:
                assert_never(event.outcome)

    def _last(
        self, kind: RowKind, at: datetime, words: str, tone: RowResult, *, error: str = ""
    ) -> None:
        for span in reversed(self.spans):
            if span.kind is kind:
                return span.finish(at, words, tone, error=error)
        return None

    def _add(self, kind: RowKind, at: datetime, words: str, attempt: int = 0) -> SpanBuilder:
        span = self._span(kind, at, words)
        span.attempt = attempt
        self.spans.append(span)
        return span

    def _span(self, kind: RowKind, at: datetime | None, words: str) -> SpanBuilder:
        return SpanBuilder(
            kind=kind, step=self.step, name=self.tool, depth=self.depth, start=at, words=words
        )

"""Builds the spans of one frame while a journal is folded into a timeline."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from runtime.core import events as e
from runtime.core.enums import Verdict
from runtime.queries.timeline.calls import CallSpans
from runtime.queries.timeline.rows import RowKind, RowResult
from runtime.queries.timeline.spans import GateFacts, SpanBuilder

_WITH_RUN = "ended with the run"
_BRAKED = "rate limited, next request at"
_OUT_OF_BRAKE = "waited for the rate limit"


@dataclass(slots=True, kw_only=True)
class FrameSpans:
    """One frame: its own span, then model calls and tool calls in order."""

    id: str
    parent: str | None
    agent: str
    depth: int
    turn: int = 0
    own: list[SpanBuilder] = field(default_factory=list)
    items: list[SpanBuilder | CallSpans] = field(default_factory=list)
    calls: dict[str, CallSpans] = field(default_factory=dict)
    of_turn: list[CallSpans] = field(default_factory=list)
    attempts: int = 0  # attempts at the model call of the next turn
    is_blocked: bool = False  # stopped by a gate before its model was called
    answered: bool = False  # its model gave a final answer; a message reopens it

    def open(self, at: datetime, *, asks: bool = True) -> None:
        self.own.append(self._span(RowKind.AGENT, self.id, at, "at work"))
        if asks:
            self.ask(at)

    def reopen(self) -> None:
        """Reopen the frame after the run was exported and imported."""
        self.own[0].end, self.own[0].words, self.own[0].tone = None, "at work", RowResult.OPEN

    def retried(self, at: datetime) -> None:
        """Reopen the frame after a retry of its failed run; if its model had failed, the model is called again."""
        if self.parent is not None and self.own[0].words != _WITH_RUN:
            return
        self.reopen()
        last = self.items[-1] if self.items else None
        if isinstance(last, SpanBuilder) and last.kind is RowKind.MODEL and not self.answered:
            self.ask(at)

    def ask(self, at: datetime) -> None:
        self.answered = False
        self.attempts += 1
        span = self._span(RowKind.MODEL, f"{self.id}/m{self.turn + 1}", at, "waiting for a reply")
        span.attempt = self.attempts
        self.items.append(span)

    def replied(self, at: datetime, model: str, calls: Mapping[str, str]) -> None:
        count = len(calls)
        label = f"{count} tool call{'s' if count > 1 else ''}" if count else "answered"
        self._last_model(at, label, RowResult.DONE, model=model)
        self.turn += 1
        self.attempts, self.answered = 0, not calls
        self.of_turn = []
        for call, tool in calls.items():
            track = CallSpans(step=f"{self.id}/{call}", tool=tool, depth=self.depth + 1)
            self.calls[call] = track
            self.items.append(track)
            self.of_turn.append(track)

    def compacted(self, at: datetime, model: str) -> None:
        self._last_model(at, "summarised earlier messages", RowResult.DONE, model=model)
        self.attempts = 0
        self.ask(at)

    def changed(self, at: datetime) -> None:
        span = self._span(RowKind.AGENT, self.id, at, "")
        span.finish(at, "continued under another version", RowResult.OVER)
        self.items.append(span)

    def model_failed(self, at: datetime, event: e.ModelFailed) -> None:
        self._last_model(
            at,
            "failed",
            RowResult.BAD,
            error=event.error,
            model=event.model,
            partial=event.partial,
            said=event.said,
        )

    def halt(
        self,
        event: e.GateOpened | e.GateDecided | e.GateClosed,
        at: datetime,
        position: int,
        gates: Mapping[UUID, GateFacts],
    ) -> None:
        """Handle a gate of the frame itself. Its model is called after a person continues it."""
        if isinstance(event, e.GateOpened):
            span = self._span(RowKind.PERSON, self.id, at, "")
            span.gate_opened(event, position, gates)
            self._unask(at)
            self.items.append(span)
            return
        for item in self.items:
            if isinstance(item, SpanBuilder) and item.gate == event.gate:
                if isinstance(event, e.GateClosed):
                    item.gate_closed(event, at)
                else:
                    item.gate_decided(event, at, gates)
                    self._ask_again(event, at)

    def _unask(self, at: datetime) -> None:
        """Remove the model call that the entry of the gate began: the gate prevented it."""
        last = self.items[-1] if self.items else None
        if isinstance(last, SpanBuilder) and last.kind is RowKind.MODEL and last.start == at:
            self.items.pop()
            self.attempts, self.is_blocked = 0, True

    def _ask_again(self, event: e.GateDecided, at: datetime) -> None:
        if self.is_blocked and event.verdict is Verdict.CONTINUE:
            self.is_blocked = False
            self.ask(at)

    def model_retries(self, at: datetime, event: e.RetryScheduled) -> None:
        if event.cause == "brake":
            self._held_back(at, event)
            return
        words = "its worker was lost" if event.cause == "lost" else "no reply"
        if event.instead:
            words = "no reply, the next model is called"
        self._last_model(
            at,
            words,
            RowResult.BAD,
            error=event.error,
            model=event.model,
            partial=event.partial,
            said=event.said,
        )
        if event.until is not None and event.until > at:
            self._waits(at, "tries again at", event.until)

    def _held_back(self, at: datetime, event: e.RetryScheduled) -> None:
        """Replace the attempt, which was not made, with a wait; consecutive waits share one span."""
        self.attempts -= 1
        last = self.items[-1] if self.items else None
        if isinstance(last, SpanBuilder) and last.kind is RowKind.MODEL:
            self.items.pop()
        until = event.until or at
        before = self.items[-1] if self.items else None
        if isinstance(before, SpanBuilder) and before.words == _OUT_OF_BRAKE:
            before.end, before.words, before.tone = None, _BRAKED, RowResult.OPEN
            before.until = until
            return
        self._waits(at, _BRAKED, until)

    def _waits(self, at: datetime, words: str, until: datetime) -> None:
        span = self._span(RowKind.WAIT, f"{self.id}/m{self.turn + 1}", at, words)
        span.until = until
        self.items.append(span)

    def model_asked_again(self, at: datetime) -> None:
        waits = [
            span
            for span in self.items
            if isinstance(span, SpanBuilder) and span.kind is RowKind.WAIT
        ]
        braked = bool(waits) and waits[-1].words == _BRAKED
        words = _OUT_OF_BRAKE if braked else "waited before the next attempt"
        self._last(RowKind.WAIT, at, words, RowResult.OVER)
        self.ask(at)

    def waits_for_model(self) -> bool:
        """Tell whether all calls of the turn are settled and the model has not been called since."""
        settled = bool(self.of_turn) and all(call.settled for call in self.of_turn)
        return settled and not self.attempts and not self.is_blocked

    def close(self, at: datetime, outcome: str) -> None:
        self.own[0].finish(at, outcome, RowResult.DONE if outcome == "answered" else RowResult.BAD)

    def end(self, at: datetime, words: str, tone: RowResult) -> None:
        self.own[0].finish(at, words, tone)
        for item in self.items:
            if isinstance(item, CallSpans):
                item.end(at, _WITH_RUN)
            else:
                item.finish(at, _WITH_RUN, RowResult.OVER)

    def spans(self, frames: Mapping[str, "FrameSpans"], seen: set[str]) -> list[SpanBuilder]:
        """Return all spans in tree order. Skip frames already seen: a damaged journal may have cycles."""
        if self.id in seen:
            return []
        seen.add(self.id)
        spans = list(self.own)
        for item in self.items:
            if isinstance(item, SpanBuilder):
                spans.append(item)
                continue
            spans += item.shown()
            child = frames.get(item.child or "")
            if child is not None:
                spans += child.spans(frames, seen)
        return spans

    def _last_model(
        self,
        at: datetime,
        words: str,
        tone: RowResult,
        *,
        model: str,
        error: str = "",
        partial: str = "",
        said: str = "",
    ) -> None:
        for item in reversed(self.items):
            if isinstance(item, SpanBuilder) and item.kind is RowKind.MODEL:
                return item.finish(
                    at, words, tone, error=error, model=model, partial=partial, said=said
                )
        return None

    def _last(self, kind: RowKind, at: datetime, words: str, tone: RowResult) -> None:
        for item in reversed(self.items):
            if isinstance(item, SpanBuilder) and item.kind is kind:
                return item.finish(at, words, tone)
        return None

    def _span(self, kind: RowKind, step: str, at: datetime, words: str) -> SpanBuilder:
        depth = self.depth if kind is RowKind.AGENT else self.depth + 1
        return SpanBuilder(
            kind=kind, step=step, name=self.agent, depth=depth, start=at, words=words
        )

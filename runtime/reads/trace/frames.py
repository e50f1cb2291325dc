"""One frame of a run: its messages and calls, and the spans of its agent, its model calls and its gates."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from runtime.core.run import events as e
from runtime.core.run.continuation import Frame, FrameState, PlanItem
from runtime.core.values.enums import WAITS_FOR_PERSON, GateKind
from runtime.core.values.ids import compute_depth
from runtime.reads import labels
from runtime.reads.redaction import redact
from runtime.reads.trace.calls import CallRecord
from runtime.reads.trace.span import GateFacts, Span, SpanKind, SpanState, Usage

_CALLS_MODEL = frozenset({FrameState.ASKING, FrameState.RETRYING})
_WITHOUT_REPLY = {"lost": SpanState.WORKER_LOST, "message": SpanState.CUT_OFF}


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameMessage:
    """One message in a frame. `by` is a person, an agent or a tool; `content` is JSON, text, or a `Stored` result.

    `order` counts the messages of the run; `turn` is the frame's, 0 before its model replied; `agent` owns the frame.
    `until` is the time of the next attempt; `reported_by` is the person who reported a result, gave a reply in a fork,
    or let the frame continue under another version with all others.
    """

    order: int
    turn: int
    agent: str
    kind: labels.MessageKind
    by: str
    content: Any
    at: datetime
    until: datetime | None = None
    reported_by: str = ""

    @property
    def value(self) -> Any:
        """The content, without secrets."""
        return redact(self.content)

    @property
    def title(self) -> str:
        """The heading; `by` follows."""
        return labels.MESSAGES[self.kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """A model call without a reply, repeated at `until`; `since` is the time of the first failure.

    `provider_error` is the error text of the provider, for admins; empty for other people.
    """

    error: str
    attempt: int
    until: datetime | None
    since: datetime | None = None
    provider_error: str = ""


@dataclass(slots=True, kw_only=True)
class FrameRecord:
    """One activation of one agent, with what its state `frame` does not have. Only the trace changes it.

    `by_id` has all its calls, also those of turns that the state has no more. `open_gates` counts its own gates that
    wait for a person. `items` are its spans and the calls between them, in order. `delivered` counts the messages of
    people that its model received.
    """

    frame: Frame
    outcome: str | None = None
    retry: Retry | None = None
    open_gates: int = 0
    by_id: dict[str, CallRecord] = field(default_factory=dict)
    children: "dict[str, FrameRecord]" = field(default_factory=dict)  # by the id of their call
    messages: list[FrameMessage] = field(default_factory=list)
    delivered: int = 0
    agent_span: Span = field(init=False)
    items: list[Span | CallRecord] = field(default_factory=list)

    @property
    def id(self) -> str:
        """The id of the frame."""
        return self.frame.id

    @property
    def agent(self) -> str:
        """The name of its agent."""
        return self.frame.agent

    @property
    def parent(self) -> str | None:
        """The frame that called its agent, None for the root."""
        return self.frame.parent

    @property
    def fingerprint(self) -> str:
        """The version of its agent."""
        return self.frame.fingerprint

    @property
    def prompt(self) -> e.PinnedPrompt | None:
        """The version of its prompt."""
        return self.frame.pinned

    @property
    def plan(self) -> tuple[str, ...] | None:
        """The steps that its author declared, None without any."""
        return self.frame.plan

    @property
    def turn(self) -> int:
        """The number of replies of its model."""
        return self.frame.turn

    @property
    def is_item(self) -> bool:
        """Whether it works on one item of a list."""
        return self.frame.item

    @property
    def todo(self) -> tuple[PlanItem, ...]:
        """The plan that its model keeps."""
        return tuple(replace(item, text=redact(item.text)) for item in self.frame.todo)

    def is_above(self, frame: str) -> bool:
        """Tell whether this is the frame with this id, or is above it: a frame's id begins with its parent's."""
        return f"{frame}.".startswith(f"{self.id}.")

    @property
    def depth(self) -> int:
        """The number of frames above this one."""
        return compute_depth(self.id)

    @property
    def calls(self) -> tuple[CallRecord, ...]:
        """The calls, in the order in which the model proposed them."""
        return tuple(self.by_id.values())

    @property
    def label(self) -> str:
        """The status: the outcome, or the state of the last open call; `until` follows."""
        if self.outcome is not None:
            return self.outcome
        if self.open_gates:
            return "stopped until a person continues it"
        if self.retry is not None:
            return "its model is called again"
        return self._waits_for.label if self._waits_for else "in progress"

    @property
    def until(self) -> datetime | None:
        """The time that follows `label`, if any."""
        waits = (
            self.outcome is None and not self.open_gates and self.retry is None and self._waits_for
        )
        return waits.waits_until if waits else None

    @property
    def waiting(self) -> str:
        """What the agent waits for: what a sub-agent waits for, if it waits for one. Empty if it works or has ended."""
        call = self._waits_for
        if self.outcome is not None:
            return ""
        if self.open_gates or self.retry is not None:
            return self.label
        child = self.children.get(call.id) if call is not None else None
        if child is not None:
            return child.waiting
        return call.label if call is not None and call.state in WAITS_FOR_PERSON else ""

    @property
    def _waits_for(self) -> CallRecord | None:
        open_calls = [call for call in self.calls if not call.is_settled]
        return open_calls[-1] if open_calls else None

    @property
    def done_items(self) -> int:
        """The number of items of the plan that are done."""
        return sum(item.state == "done" for item in self.frame.todo)

    def take(self, frame: Frame) -> None:
        """Take the next state of the frame and of the calls of its turn, which may be new."""
        self.frame = frame
        for call in frame.list_turn_calls():
            if call.id in self.by_id:
                self.by_id[call.id].call = call
            else:
                self.by_id[call.id] = CallRecord(call=call, frame=frame.id, agent=frame.agent)
                self.items.append(self.by_id[call.id])
        is_repeated = frame.attempt > 1 or frame.ticket != 0 or frame.state is FrameState.RETRYING
        if not is_repeated or frame.state not in _CALLS_MODEL:
            self.retry = None

    def delegate(self, call: str, child: "FrameRecord") -> None:
        """Hand a call over to the frame that works on it."""
        self.by_id[call].child = child.id
        self.children[call] = child

    def deliver(self, count: int) -> None:
        """Mark the next `count` messages of people as delivered before the last reply."""
        if not count:
            return
        indexes = [i for i, message in enumerate(self.messages) if message.kind == "message"]
        for i in indexes[self.delivered : self.delivered + count]:
            self.messages[i] = replace(self.messages[i], turn=self.turn - 1)
        self.delivered += count

    def open(self, at: datetime) -> None:
        """Open the frame. A copied one may wait for the next attempt at its model call."""
        self.agent_span = self._span(SpanKind.AGENT, self.id, at, SpanState.AT_WORK)
        if self.frame.state is FrameState.RETRYING:
            self._add(SpanKind.WAIT, at, SpanState.BACKING_OFF).until = self.frame.until

    def reopen(self) -> None:
        """Reopen the frame with its calls, because the run is tried again or was imported."""
        self.agent_span.end, self.agent_span.state = None, SpanState.AT_WORK
        self.outcome = None
        for call in self.by_id.values():
            call.reopen()

    def call_model(self, at: datetime) -> None:
        """Begin a model call."""
        self._add(SpanKind.MODEL, at, SpanState.ASKED).attempt = self.frame.attempt

    def add_reply(self, at: datetime, event: e.ModelReplied) -> None:
        """End the model call with its reply."""
        usage = Usage(
            input=event.usage.get("input_tokens", 0),
            output=event.usage.get("output_tokens", 0),
            cost=event.cost,
        )
        for span in self._of_kind(SpanKind.MODEL):
            state = SpanState.REPLIED if event.calls else SpanState.ANSWERED
            tools = tuple(proposal.tool for proposal in event.calls)
            span.finish(at, state, model=event.model, tools=tools, usage=usage)
            span.by = event.given_by or span.by
            return

    def add_summary(self, at: datetime, model: str) -> None:
        """End the model call that summarised earlier messages."""
        for span in self._of_kind(SpanKind.MODEL):
            return span.finish(at, SpanState.COMPACTED, model=model)
        return None

    def change_version(self, at: datetime) -> None:
        """Add a span for the change of the agent's version."""
        span = self._span(SpanKind.AGENT, self.id, at, SpanState.NEW_VERSION)
        span.depth += 1
        span.end = at
        self.items.append(span)

    def fail_model(
        self,
        at: datetime,
        event: e.ModelFailed | e.RetryScheduled,
        provider_error: str,
        state: SpanState = SpanState.FAILED,
    ) -> None:
        """End the model call with its error."""
        for span in self._of_kind(SpanKind.MODEL):
            return span.finish(
                at,
                state,
                error=event.error,
                model=event.model,
                partial=event.partial,
                provider_error=provider_error,
            )
        return None

    def open_gate(
        self, gate: UUID, kind: GateKind, at: datetime, position: int, facts: GateFacts | None
    ) -> Span:
        """Open a gate of the frame itself, and remove the model call that the same entry began."""
        self.open_gates += 1
        if self._last_is(SpanKind.MODEL) and self._last.start == at:
            self.items.pop()
        span = self._span(SpanKind.PERSON, self.id, at, SpanState.GATE_OPEN)
        span.open_gate(gate, kind, position, facts)
        self.items.append(span)
        return span

    def list_gate_spans(self, gate: UUID, call: str) -> list[Span]:
        """Return the spans of a gate of the frame, or of this call of it."""
        items = self.by_id[call].spans if call else self.items
        return [item for item in items if isinstance(item, Span) and item.gate == gate]

    def schedule_retry(self, at: datetime, event: e.RetryScheduled, provider_error: str) -> None:
        """End an attempt at the model call, and begin the wait for the next one."""
        self.retry = Retry(
            error=redact(event.error),
            attempt=event.attempt,
            until=event.until,
            since=event.since,
            provider_error=provider_error,
        )
        if event.cause == "brake":
            # The attempt was not made: a wait takes its place, and consecutive waits share one span.
            if self._last_is(SpanKind.MODEL):
                self.items.pop()
            if self._last_is(SpanKind.WAIT) and self._last.state is SpanState.WAS_RATE_LIMITED:
                self._last.end, self._last.state = None, SpanState.RATE_LIMITED
            else:
                self._add(SpanKind.WAIT, at, SpanState.RATE_LIMITED)
            self._last.until = event.until or at
            return
        state = _WITHOUT_REPLY.get(event.cause, SpanState.NO_REPLY)
        self.fail_model(at, event, provider_error, SpanState.NEXT_MODEL if event.instead else state)
        if event.until is not None and event.until > at:
            self._add(SpanKind.WAIT, at, SpanState.BACKING_OFF).until = event.until

    def end_wait(self, at: datetime) -> None:
        """End the wait before the next attempt at the model call."""
        if self.retry is not None:
            self.retry = replace(self.retry, until=None)
        for span in self._of_kind(SpanKind.WAIT):
            is_limited = span.state is SpanState.RATE_LIMITED
            span.finish(at, SpanState.WAS_RATE_LIMITED if is_limited else SpanState.BACKED_OFF)
            break

    @property
    def is_calling_model(self) -> bool:
        """Whether a model call is under way."""
        last = next(self._of_kind(SpanKind.MODEL), None)
        return last is not None and last.end is None

    def close(self, at: datetime, outcome: str) -> None:
        """Close the frame with its outcome."""
        self.outcome, self.retry = outcome, None
        is_answered = outcome == "answered"
        self.agent_span.finish(at, SpanState.ANSWERED if is_answered else SpanState.FAILED)

    def end(self, at: datetime, state: SpanState) -> None:
        """End the frame and its open spans with the run."""
        self.agent_span.finish(at, state)
        for item in self.items:
            if isinstance(item, CallRecord):
                item.end(at)
            else:
                item.finish(at, SpanState.WITH_RUN)

    def close_calls(self) -> None:
        """Close the calls that have not finished, because the run has ended."""
        self.retry = None
        for call in self.by_id.values():
            call.is_over = True

    def walk_spans(self) -> Iterator[Span]:
        """Yield all spans in tree order."""
        self.agent_span.waiting = self.waiting
        yield self.agent_span
        for item in self.items:
            if isinstance(item, Span):
                yield item
                continue
            yield from item.list_shown_spans()
            if item.id in self.children:
                yield from self.children[item.id].walk_spans()

    @property
    def _last(self) -> Span:
        last = self.items[-1]
        assert isinstance(last, Span)
        return last

    def _last_is(self, kind: SpanKind) -> bool:
        last = self.items[-1] if self.items else None
        return isinstance(last, Span) and last.kind is kind

    def _of_kind(self, kind: SpanKind) -> Iterator[Span]:
        """Yield the spans of a kind, the newest first."""
        for item in reversed(self.items):
            if isinstance(item, Span) and item.kind is kind:
                yield item

    def _add(self, kind: SpanKind, at: datetime, state: SpanState) -> Span:
        span = self._span(kind, f"{self.id}/m{self.turn + 1}", at, state)
        self.items.append(span)
        return span

    def _span(self, kind: SpanKind, step: str, at: datetime, state: SpanState) -> Span:
        depth = self.depth if kind is SpanKind.AGENT else self.depth + 1
        return Span(kind=kind, step=step, name=self.agent, depth=depth, start=at, state=state)

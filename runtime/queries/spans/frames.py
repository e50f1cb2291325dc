"""One frame of a run: its messages and calls, and the spans of its agent, its model calls and its gates."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from runtime.core import events as e
from runtime.core.call_states import SETTLED, WAITS_FOR_PERSON, CallState
from runtime.core.continuation import PlanItem
from runtime.core.enums import Verdict
from runtime.core.ids import depth_of
from runtime.core.machine import plans
from runtime.queries import labels
from runtime.queries.spans.calls import CallRecord
from runtime.queries.spans.span import GateFacts, Span, Usage
from runtime.queries.spans.states import SpanKind, SpanState

# Calls in these states wait, and their labels need no time after them.
_WITHOUT_REPLY = {"lost": SpanState.WORKER_LOST, "message": SpanState.CUT_OFF}


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message in a frame. `by` is a person, an agent or a tool; `value` is JSON, plain text, or a `Stored` result.

    `order` counts the messages of the run; `turn` is the frame's, 0 before its model replied; `agent` owns the frame.
    `until` is the time of the next attempt; `reported_by` is the person who reported a result, gave a reply in a fork,
    or let the frame continue under another version with all others.
    """

    order: int
    turn: int
    agent: str
    kind: labels.MessageKind
    by: str
    value: Any
    at: datetime
    until: datetime | None = None
    reported_by: str = ""

    @property
    def title(self) -> str:
        """The heading; `by` follows."""
        return labels.MESSAGES[self.kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """A model call without a reply, repeated at `until`; `since` is the time of the first failure.

    `said` is the error text of the provider, for admins; empty for other people.
    """

    error: str
    attempt: int
    until: datetime | None
    since: datetime | None = None
    said: str = ""


@dataclass(slots=True, kw_only=True)
class FrameRecord:
    """One activation of one agent. `plan` is None if the agent has not declared its steps. Only the fold changes it.

    `frame_gates` counts its own gates that wait for a person. `items` are its spans and the calls between them, in
    order. `todo` is the plan that its model keeps, `prompt` the version of its prompt. With `is_item` it works on one
    item of a list.
    """

    id: str
    agent: str
    fingerprint: str
    plan: tuple[str, ...] | None
    parent: str | None
    call: str | None
    prompt: e.PinnedPrompt | None = None
    turn: int = 0
    outcome: str | None = None
    retry: Retry | None = None
    frame_gates: int = 0
    by_id: dict[str, CallRecord] = field(default_factory=dict)
    children: "dict[str, FrameRecord]" = field(default_factory=dict)  # by the id of their call
    messages: list[Message] = field(default_factory=list)
    delivered: int = 0  # messages of people delivered to its model
    own: Span = field(init=False)
    items: list[Span | CallRecord] = field(default_factory=list)
    of_turn: list[CallRecord] = field(default_factory=list)
    attempts: int = 0  # attempts at the model call of the next turn
    is_blocked: bool = False  # stopped by a gate before its model was called
    answered: bool = False  # its model gave a final answer; a message reopens it
    todo: tuple[PlanItem, ...] = ()
    is_item: bool = False

    def is_above(self, frame: str) -> bool:
        """Tell whether this is the frame with this id, or is above it: a frame's id begins with its parent's."""
        return f"{frame}.".startswith(f"{self.id}.")

    @property
    def depth(self) -> int:
        """The number of frames above this one."""
        return depth_of(self.id)

    @property
    def calls(self) -> tuple[CallRecord, ...]:
        """The calls, in the order in which the model proposed them."""
        return tuple(self.by_id.values())

    @property
    def label(self) -> str:
        """The status: the outcome, or the state of the last open call; `until` follows."""
        if self.outcome is not None:
            return self.outcome
        if self.frame_gates:
            return "stopped until a person continues it"
        if self.retry is not None:
            return "its model is called again"
        return self._waits_for.label if self._waits_for else "in progress"

    @property
    def until(self) -> datetime | None:
        """The time that follows `label`, if any."""
        waits = (
            self.outcome is None and not self.frame_gates and self.retry is None and self._waits_for
        )
        return waits.waits_until if waits else None

    @property
    def waiting(self) -> str:
        """What the agent waits for: what a sub-agent waits for, if it waits for one. Empty if it works or has ended."""
        call = self._waits_for
        if self.outcome is not None:
            return ""
        if self.frame_gates or self.retry is not None:
            return self.label
        child = self.children.get(call.id) if call is not None else None
        if child is not None:
            return child.waiting
        return call.label if call is not None and call.state in WAITS_FOR_PERSON else ""

    @property
    def _waits_for(self) -> CallRecord | None:
        still = [call for call in self.calls if not call.is_settled]
        return still[-1] if still else None

    def keep_plan(self, call: CallRecord) -> None:
        """Take the plan that a returned call has for its result."""
        if call.keeps_plan:
            self.todo = plans.read(call.result) or ()

    @property
    def done_items(self) -> int:
        """The number of items of the plan that are done."""
        return sum(one.state == "done" for one in self.todo)

    def delegate(self, call: CallRecord, child: "FrameRecord") -> None:
        """Hand a call over to the frame that works on it."""
        call.child = child.id
        self.children[call.id] = child

    def deliver(self, count: int) -> None:
        """Mark the next `count` messages of people as delivered for the next turn."""
        places = [at for at, message in enumerate(self.messages) if message.kind == "message"]
        for at in places[self.delivered : self.delivered + count]:
            self.messages[at] = replace(self.messages[at], turn=self.turn)
        self.delivered += count

    def open(self, at: datetime, *, calls_model: bool = True) -> None:
        """Open the frame. With `asks` its first model call begins."""
        self.own = self._span(SpanKind.AGENT, self.id, at, SpanState.AT_WORK)
        if calls_model:
            self.call_model(at)

    def reopen(self) -> None:
        """Reopen the frame after the run was exported and imported."""
        self.own.end, self.own.state = None, SpanState.AT_WORK

    def retried(self, at: datetime) -> None:
        """Reopen the frame after a retry of its failed run; if its model had failed, the model is called again."""
        for call in self.calls:
            call.reopen()
        if self.parent is None:
            self.outcome = None
        elif self.own.state is not SpanState.WITH_RUN:
            return
        self.reopen()
        if self._last_is(SpanKind.MODEL) and not self.answered:
            self.call_model(at)

    def call_model(self, at: datetime) -> None:
        """Begin a model call."""
        self.answered = False
        self.attempts += 1
        self._add(SpanKind.MODEL, at, SpanState.ASKED).attempt = self.attempts

    def replied(
        self,
        at: datetime,
        model: str,
        calls: list[CallRecord],
        usage: Usage | None = None,
        *,
        given_by: str = "",
    ) -> None:
        """End the model call with its reply and the new calls. `given_by` is the person who gave it in a fork."""
        state = SpanState.REPLIED if calls else SpanState.ANSWERED
        tools = tuple(call.tool for call in calls)
        self._end_last(SpanKind.MODEL, at, state, model=model, tools=tools, usage=usage)
        if given_by:
            next(self._of_kind(SpanKind.MODEL)).by = given_by
        self.turn += 1
        self.attempts, self.answered, self.retry = 0, not calls, None
        self.by_id.update({call.id: call for call in calls})
        self.items += calls
        self.of_turn = calls

    def compacted(self, at: datetime, model: str) -> None:
        """End the model call that summarised earlier messages, and begin the next one."""
        self.retry = None
        self._end_last(SpanKind.MODEL, at, SpanState.COMPACTED, model=model)
        self.attempts = 0
        self.call_model(at)

    def changed(self, at: datetime) -> None:
        """Add a span for the change of the agent's version."""
        span = self._span(SpanKind.AGENT, self.id, at, SpanState.NEW_VERSION)
        span.end = at
        self.items.append(span)

    def model_failed(self, at: datetime, event: e.ModelFailed, said: str) -> None:
        """End the model call with its error."""
        self.retry = None
        self._end_model(at, SpanState.FAILED, event, said)

    def gate(
        self, event: e.GateOpened, at: datetime, position: int, gate: GateFacts | None
    ) -> None:
        """Open a gate of the frame itself, and remove the model call that the same entry began."""
        self.frame_gates += 1
        if self._last_is(SpanKind.MODEL) and self._last.start == at:
            self.items.pop()
            self.attempts, self.is_blocked = 0, True
        span = self._span(SpanKind.PERSON, self.id, at, SpanState.GATE_OPEN)
        span.gate_opened(event, position, gate)
        self.items.append(span)

    def gate_decided(self, event: e.GateDecided, at: datetime, gate: GateFacts | None) -> None:
        """Call the model if the gate prevented that and a person continues the frame."""
        self.frame_gates -= 1
        for span in self._of_gate(event.gate):
            span.gate_decided(event, at, gate)
            if self.is_blocked and event.verdict is Verdict.CONTINUE:
                self.is_blocked = False
                self.call_model(at)

    def gate_closed(self, event: e.GateClosed, at: datetime) -> None:
        """Close a gate that has no decision."""
        self.frame_gates -= 1
        for span in self._of_gate(event.gate):
            span.gate_closed(event, at)

    def model_retries(self, at: datetime, event: e.RetryScheduled, said: str) -> None:
        """End an attempt at the model call, and begin the wait for the next one."""
        if event.cause == "brake":
            self._rate_limited(at, event.until or at)
            return
        state = _WITHOUT_REPLY.get(event.cause, SpanState.NO_REPLY)
        self._end_model(at, SpanState.NEXT_MODEL if event.instead else state, event, said)
        if event.until is not None and event.until > at:
            self._add(SpanKind.WAIT, at, SpanState.BACKING_OFF).until = event.until

    def _rate_limited(self, at: datetime, until: datetime) -> None:
        """Replace the attempt, which was not made, with a wait; consecutive waits share one span."""
        self.attempts -= 1
        if self._last_is(SpanKind.MODEL):
            self.items.pop()
        if self._last_is(SpanKind.WAIT) and self._last.state is SpanState.WAS_RATE_LIMITED:
            self._last.end, self._last.state = None, SpanState.RATE_LIMITED
        else:
            self._add(SpanKind.WAIT, at, SpanState.RATE_LIMITED)
        self._last.until = until

    def model_called_again(self, at: datetime) -> None:
        """End the wait before the next attempt at the model call."""
        if self.retry is not None:
            self.retry = replace(self.retry, until=None)
        for span in self._of_kind(SpanKind.WAIT):
            braked = span.state is SpanState.RATE_LIMITED
            span.finish(at, SpanState.WAS_RATE_LIMITED if braked else SpanState.BACKED_OFF)
            break
        self.call_model(at)

    def waits_for_model(self) -> bool:
        """Tell whether all calls of the turn are settled and the model has not been called since."""
        settled = bool(self.of_turn) and all(call.state in SETTLED for call in self.of_turn)
        return settled and not self.attempts and not self.is_blocked

    @property
    def has_released(self) -> bool:
        """Whether the only call of the turn was the answer, and reviewers released it."""
        calls = self.of_turn
        return len(calls) == 1 and calls[0].answers and calls[0].state is CallState.RETURNED

    def close(self, at: datetime, outcome: str) -> None:
        """Close the frame with its outcome."""
        self.outcome, self.retry = outcome, None
        done = outcome == "answered"
        self.own.finish(at, SpanState.ANSWERED if done else SpanState.FAILED)

    def end(self, at: datetime, state: SpanState) -> None:
        """End the frame and its open spans with the run."""
        self.own.finish(at, state)
        for item in self.items:
            if isinstance(item, CallRecord):
                item.end(at)
            else:
                item.finish(at, SpanState.WITH_RUN)

    def close_calls(self, states: frozenset[CallState]) -> None:
        """Close the calls in these states, because the run has ended."""
        self.retry = None
        for call in self.calls:
            if call.state in states:
                call.state, call.until = CallState.CLOSED, None

    def spans(self) -> Iterator[Span]:
        """Yield all spans in tree order."""
        self.own.waiting = self.waiting
        yield self.own
        for item in self.items:
            if isinstance(item, Span):
                yield item
                continue
            yield from item.shown()
            if item.id in self.children:
                yield from self.children[item.id].spans()

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

    def _of_gate(self, gate: UUID) -> list[Span]:
        return [item for item in self.items if isinstance(item, Span) and item.gate == gate]

    def _end_model(
        self, at: datetime, state: SpanState, event: e.ModelFailed | e.RetryScheduled, said: str
    ) -> None:
        for span in self._of_kind(SpanKind.MODEL):
            return span.finish(
                at, state, error=event.error, model=event.model, partial=event.partial, said=said
            )
        return None

    def _end_last(
        self,
        kind: SpanKind,
        at: datetime,
        state: SpanState,
        *,
        model: str,
        tools: tuple[str, ...] = (),
        usage: Usage | None = None,
    ) -> None:
        for span in self._of_kind(kind):
            return span.finish(at, state, model=model, tools=tools, usage=usage)
        return None

    def _add(self, kind: SpanKind, at: datetime, state: SpanState) -> Span:
        span = self._span(kind, f"{self.id}/m{self.turn + 1}", at, state)
        self.items.append(span)
        return span

    def _span(self, kind: SpanKind, step: str, at: datetime, state: SpanState) -> Span:
        depth = self.depth if kind is SpanKind.AGENT else self.depth + 1
        return Span(kind=kind, step=step, name=self.agent, depth=depth, start=at, state=state)

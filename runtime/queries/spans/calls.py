"""One call of a run: its state, and the spans of its gates, attempts and waits."""

import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, assert_never

from runtime.core import events as e
from runtime.core.call_options import CallOptions
from runtime.core.call_states import CALL_STATES, ENDED, SETTLED, CallState, Effect
from runtime.core.effect_classes import RULES
from runtime.core.enums import EffectClass, GateKind, Verdict
from runtime.core.ids import depth_of
from runtime.core.verdicts import STARTS_CALL, VERDICTS, words_at
from runtime.queries.redaction import redact
from runtime.queries.spans.span import GateFacts, Span
from runtime.queries.spans.states import SpanKind, SpanState

# The span in place of one that a call does not have.
_PLACEHOLDERS = {
    **dict.fromkeys(SETTLED, SpanState.RECORDED),
    CallState.ADMITTED: SpanState.TO_START,
    CallState.CLOSED: SpanState.NOT_STARTED,
}


@dataclass(slots=True, kw_only=True)
class CallRecord:
    """One call, changed only by the fold. `note` is the reason or error of its state, `child` the frame working on it.

    `verdict` is its last decision, `decided_by` the reviewer, empty for an expiry. `attempt` and `started_at` belong to
    its last start, `until` is the time of the next attempt. `lost` says that its outcome is unknown, or was before a
    person resolved it; `late` that a late outcome settled it. `digest` is the action digest that people were
    last asked about. `edited_by` is the person who changed its arguments, empty if none did; then `proposed` has
    those of the model, and `replaced` the digest of the action before. With `keeps_plan` its result is the plan of its
    frame, with `tells` it is a message to the requester. `changed_by` is the person who replaced its result in a fork.
    `given` are the arguments that a person gave in a fork, `given_by` that person. With `is_given` they are those of a
    reply in the place of the model's, and still its own.
    """

    id: str
    frame: str
    agent: str
    tool: str
    args: Any
    state: CallState = CallState.PROPOSED
    note: str = ""
    effect: EffectClass | None = None
    verdict: Verdict | None = None
    decided_by: str = ""
    attempt: int = 0
    started_at: datetime | None = None
    until: datetime | None = None
    lost: bool = False
    late: bool = False
    digest: str = ""
    keeps_plan: bool = False
    changed_by: str = ""
    edited_by: str = ""
    proposed: Any = None
    given: Any = None
    given_by: str = ""
    is_given: bool = False
    replaced: str = ""
    result: Any = None
    child: str | None = None
    answers: bool = False
    tells: bool = False
    spans: list[Span] = field(default_factory=list)

    @property
    def label(self) -> str:
        """The state in words; `moment` or a name may follow."""
        match self.state, self.verdict:
            case CallState.ADMITTED, verdict if verdict in STARTS_CALL:
                return "approved, about to start"
            case CallState.DENIED, Verdict.REQUEST_CHANGES:
                return "to be changed, never started"
            case CallState.DENIED, Verdict.EXPIRE:
                return "expired, never started"
            case CallState.RETURNED, Verdict.ANSWER:
                return "answered by a person" if self.decided_by else "answered by the policy"
            case CallState.CLOSED, _ if self.child:
                return "ended with the run"
            case CallState.CLOSED, _ if self.lost:
                return "in doubt: the run was ended before a person resolved the call"
            case CallState.CLOSED, _ if self.attempt:
                return "not tried again: the run was ended first"
            case CallState.RETURNED, _ if self.late:
                return "done, by its late outcome"
            case CallState.FAILED, _ if self.late:
                return "failed, by its late outcome"
            case CallState.RETRYING, _ if self.until:
                return "tries again at"
            case CallState.WAITING, _ if self.until:
                return "waits for an event until" if self.note else "waits until"
            case _:
                return CALL_STATES[self.state].label

    @property
    def proposed_by(self) -> str:
        """The person who gave the `proposed` arguments in a fork, empty if a model did."""
        return self.given_by if self.proposed == self.given else ""

    def give(self, by: str) -> None:
        """Mark a call of a reply that this person gave in a fork."""
        self.edited_by = self.given_by = by
        self.proposed = self.given = self.args
        self.is_given = True

    def admitted(self, terms: CallOptions) -> None:
        """Admit the call."""
        self.state, self.effect, self.keeps_plan = CallState.ADMITTED, terms.effect, terms.plan
        self.answers, self.tells = terms.answers, terms.tells

    @property
    def waits_until(self) -> datetime | None:
        """The time that follows `label`, for a call that waits."""
        return self.until if self.state in (CallState.RETRYING, CallState.WAITING) else None

    @property
    def decision(self) -> str:
        """The label of the last decision; the name of the reviewer follows, if there is one."""
        if self.verdict is Verdict.ANSWER and not self.decided_by:
            return "answered by the policy, because no person decided in time"
        return "" if self.verdict is None else words_at(self.gate_kind, self.verdict).past

    @property
    def gate_kind(self) -> GateKind | None:
        """The kind of its last gate, None without one."""
        return next((span.gate_kind for span in reversed(self.spans) if span.for_people), None)

    @property
    def is_settled(self) -> bool:
        """Whether the call is in a final state."""
        return self.state in ENDED

    @property
    def has_side_effects(self) -> bool:
        """Tell whether the call changed the outside world, or may have. Cancelling the run does not undo that."""
        if self.child is not None or (self.effect and not RULES[self.effect].has_side_effects):
            return False
        effect = CALL_STATES[self.state].effect
        if self.verdict is Verdict.ANSWER or effect is Effect.IF_TRIED:
            return self.attempt > 0
        return effect is Effect.POSSIBLE

    def shown(self) -> list[Span]:
        """Return the spans, or one placeholder for a call that has not started."""
        if self.spans or self.child:
            return self.spans
        return [
            self._span(SpanKind.TOOL, None, _PLACEHOLDERS.get(self.state, SpanState.NOT_CHECKED))
        ]

    def become(self, state: CallState, note: str = "", *, until: datetime | None = None) -> None:
        """Set the state of the call."""
        self.state, self.note, self.until = state, redact(note), until

    def gated(
        self, event: e.GateOpened, at: datetime, position: int, gate: GateFacts | None
    ) -> None:
        """Open a gate of the call."""
        if event.terms is not None:
            self.effect, self.digest = event.terms.effect, event.terms.digest
            self.keeps_plan, self.answers = event.terms.plan, event.terms.answers
            self.tells = event.terms.tells
        if event.kind is GateKind.IN_DOUBT:
            self.state = CallState.UNKNOWN
        else:  # for the first time, or again because the approved action changed
            self.state, self.note, self.decided_by, self.verdict = CallState.GATED, "", "", None
        self._add(SpanKind.PERSON, at, SpanState.GATE_OPEN).gate_opened(event, position, gate)

    def decided(self, event: e.GateDecided, at: datetime, gate: GateFacts | None) -> None:
        """End a gate with its decision."""
        self.verdict, self.decided_by, self.note = event.verdict, event.by, redact(event.reason)
        rule = VERDICTS[event.verdict]
        self.state = rule.call_becomes or self.state
        if rule.carries == "result":
            self.result = redact(event.stored or event.result)
        if event.edit is not None:
            self.proposed = self.proposed if self.edited_by else self.args
            self.args, self.edited_by, self.is_given = redact(event.edit.args), event.by, False
            self.replaced, self.digest = self.digest, event.edit.digest
        for span in self._of_gate(event.gate):
            span.gate_decided(event, at, gate)

    def gate_closed(self, event: e.GateClosed, at: datetime) -> None:
        """Close a gate that has no decision."""
        self.state, self.note = CallState.CLOSED, redact(event.reason)
        for span in self._of_gate(event.gate):
            span.gate_closed(event, at)

    def started(self, event: e.ToolStarted) -> None:
        """Begin an attempt."""
        self.become(CallState.STARTED)
        self.attempt, self.started_at = event.attempt, event.at
        self._add(SpanKind.TOOL, event.at, SpanState.STARTED).attempt = event.attempt

    def returned(self, event: e.ToolReturned, at: datetime) -> None:
        """End the attempt with the call's result."""
        self.state, self.result = CallState.RETURNED, redact(event.stored or event.result)
        self._end_last(SpanKind.TOOL, at, SpanState.DONE)

    def refused(self, event: e.CallRefused, at: datetime) -> None:
        """Record that the call cannot be made."""
        self.state, self.note = CallState.REFUSED, redact(event.reason)
        span = self._add(SpanKind.TOOL, at, SpanState.STARTED)
        span.finish(at, SpanState.REFUSED, error=event.reason)

    def failed(self, event: e.ToolFailed, at: datetime) -> None:
        """End the attempt with the call's error."""
        self.state, self.note = CallState.FAILED, redact(event.error)
        self._end_last(SpanKind.TOOL, at, SpanState.FAILED, event.error)

    def in_doubt(self, event: e.OutcomeUnknown, at: datetime) -> None:
        """End the attempt without a known outcome."""
        self.state, self.note, self.lost = CallState.UNKNOWN, redact(event.error), True
        self._end_last(SpanKind.TOOL, at, SpanState.OUTCOME_LOST, event.error)

    def arrived(self, event: e.OutcomeArrived, at: datetime) -> None:
        """Settle the call with its late outcome."""
        done = event.outcome == "returned"
        self.state = CallState.RETURNED if done else CallState.FAILED
        self.note, self.late = redact(event.error), True
        if done:
            self.note, self.result = "", redact(event.stored or event.result)
        asked = self._of_gate(event.gate) if event.gate else []
        for span in asked or [self._add(SpanKind.TOOL, at, SpanState.STARTED)]:
            late = SpanState.LATE_DONE if done else SpanState.LATE_FAILED
            span.finish(at, late, error=event.error)

    def retries(self, event: e.RetryScheduled, at: datetime) -> None:
        """End an attempt without a result, and begin the wait for the next one."""
        self.become(CallState.RETRYING, event.error, until=event.until)
        lost = event.cause == "lost"
        state = SpanState.WORKER_LOST if lost else SpanState.FAILED_ONCE
        self._end_last(SpanKind.TOOL, at, state, event.error)
        if event.until is not None and event.until > at:
            self._add(SpanKind.WAIT, at, SpanState.BACKING_OFF).until = event.until

    def waits(self, event: e.WaitStarted, at: datetime) -> None:
        """Begin a wait for a time or an event."""
        self.become(CallState.WAITING, _awaited(event), until=event.until)
        state = SpanState.AWAITS_EVENT if event.event else SpanState.AWAITS_TIME
        span = self._add(SpanKind.AWAIT, at, state)
        span.until, span.reason = event.until, _awaited(event)

    def waited(self, event: e.WaitEnded, at: datetime) -> None:
        """End a wait."""
        self.until = None
        match event.outcome:
            case "again":
                self._end_last(SpanKind.WAIT, at, SpanState.BACKED_OFF)
            case "arrived" | "timed_out":
                self.state, self.note = CallState.RETURNED, ""
                self.result = redact(event.result)
                came = event.outcome == "arrived"
                state = SpanState.EVENT_CAME if came else SpanState.TIME_CAME
                self._end_last(SpanKind.AWAIT, at, state)
            case "refused":
                self.state, self.note = CallState.FAILED, redact(str(event.result))
                span = self._add(SpanKind.AWAIT, at, SpanState.AWAITS_TIME)
                span.finish(at, SpanState.NOTHING_TO_AWAIT, error=str(event.result))
            case "closed":
                self.state = CallState.CLOSED
                self._end_last(SpanKind.AWAIT, at, SpanState.WITH_RUN)
            case _:
                assert_never(event.outcome)

    def reopen(self) -> None:
        """Undo the closing of the call with its run, because the run is retried."""
        if self.state is CallState.CLOSED:
            lost = CallState.UNKNOWN if self.lost else CallState.PROPOSED
            self.state, self.note = CallState.DELEGATED if self.child else lost, ""
            if self.given_by and not self.lost:
                self.args, self.edited_by = self.given, self.given_by
                self.is_given = self.proposed_by != ""
            elif self.edited_by and not self.lost:
                self.args, self.proposed, self.edited_by = self.proposed, None, ""

    def end(self, at: datetime) -> None:
        """End the open spans with the run."""
        for span in self.spans:
            span.finish(at, SpanState.WITH_RUN)

    def _of_gate(self, gate: object) -> list[Span]:
        return [span for span in self.spans if span.gate == gate]

    def _end_last(self, kind: SpanKind, at: datetime, state: SpanState, error: str = "") -> None:
        for span in reversed(self.spans):
            if span.kind is kind:
                return span.finish(at, state, error=error)
        return None

    def _add(self, kind: SpanKind, at: datetime, state: SpanState) -> Span:
        span = self._span(kind, at, state)
        self.spans.append(span)
        return span

    def _span(self, kind: SpanKind, at: datetime | None, state: SpanState) -> Span:
        step, depth = f"{self.frame}/{self.id}", depth_of(self.frame) + 1
        return Span(kind=kind, step=step, name=self.tool, depth=depth, start=at, state=state)


def _awaited(event: e.WaitStarted) -> str:
    """Describe the event that a call waits for; empty if it only waits for a time."""
    if not event.event:
        return ""
    match = json.dumps(redact(event.match), ensure_ascii=False)
    return event.event if match == "{}" else f"{event.event} with {match}"

"""One call of a run: its state, the spans of its gates, attempts and waits, and what tells it from others."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from runtime.core.run import events as e
from runtime.core.run.continuation import Call
from runtime.core.values.enums import (
    CALL_STATES,
    EFFECT_CLASSES,
    ENDED,
    SETTLED,
    CallState,
    Effect,
    EffectClass,
    GateKind,
    Verdict,
)
from runtime.core.values.ids import compute_depth
from runtime.core.values.verdicts import VERDICTS, VerdictRule, select_verdict_rule
from runtime.reads.redaction import redact
from runtime.reads.trace.span import GateFacts, Span, SpanKind, SpanState

# The span in place of one that a call does not have.
_PLACEHOLDERS = {
    **dict.fromkeys(SETTLED, SpanState.RECORDED),
    CallState.ADMITTED: SpanState.TO_START,
    CallState.CLOSED: SpanState.NOT_STARTED,
}
_WITHOUT_RESULT = SETTLED - {CallState.RETURNED}

MAX_VALUES = 2  # of a fact
MAX_CHARACTERS = 40  # of each of its values
_ID = re.compile(r"[0-9a-fA-F-]{16,}")


@dataclass(slots=True, kw_only=True)
class CallRecord:
    """One call of `frame`, with what its state `call` does not have. Only the trace changes it.

    `child` is the frame working on it. `verdict` is its last decision, `decided_by` the reviewer, empty for an expiry.
    `lost` says that its outcome is unknown, or was before a person resolved it; `late` that a late outcome settled it.
    `replaced` is the digest of the action before a person changed its arguments. `is_over` says that its run has ended.
    `remark` is the reason or error of its state, if the state has none.
    """

    call: Call
    frame: str
    agent: str
    remark: str = ""
    verdict: Verdict | None = None
    decided_by: str = ""
    lost: bool = False
    late: bool = False
    replaced: str = ""
    child: str | None = None
    is_over: bool = False
    spans: list[Span] = field(default_factory=list)

    @property
    def id(self) -> str:
        """The id of the call in its frame."""
        return self.call.id

    @property
    def tool(self) -> str:
        """The name of the tool."""
        return self.call.tool

    @property
    def state(self) -> CallState:
        """The state. A call that had not finished when its run ended is closed."""
        is_closed = self.is_over and CALL_STATES[self.call.state].is_to_come
        return CallState.CLOSED if is_closed else self.call.state

    @property
    def args(self) -> Any:
        """The arguments: those of the last person who changed them, if one did."""
        return redact(self.call.args)

    @property
    def proposed(self) -> Any:
        """The arguments of the model, of a call that `edited_by` changed."""
        return redact(self.call.edited.proposed) if self.call.edited else None

    @property
    def edited_by(self) -> str:
        """The person who last changed or gave the arguments, empty if none did."""
        return self.call.edited.by if self.call.edited else ""

    @property
    def is_given(self) -> bool:
        """Whether a person gave the arguments with a whole reply, in a fork."""
        return self.call.edited is not None and self.call.edited.is_of_reply(self.call.args)

    @property
    def proposed_by(self) -> str:
        """The person who gave the `proposed` arguments in a fork, empty if a model did."""
        edited = self.call.edited
        if edited is None:
            return ""
        if edited.in_fork:
            return edited.by if self.is_given else ""
        return edited.given_by if edited.proposed == edited.given else ""

    @property
    def changed_by(self) -> str:
        """The person who replaced the result in a fork, empty if none did."""
        return self.call.changed_by or ""

    @property
    def result(self) -> Any:
        """The result; None if there is none."""
        return redact(self.raw_result)

    @property
    def raw_result(self) -> Any:
        """The result with its secrets."""
        is_returned = self.call.state is CallState.RETURNED
        return self.call.stored or self.call.result if is_returned else None

    @property
    def note(self) -> str:
        """The reason or error of the state."""
        if self.call.state in _WITHOUT_RESULT:
            return str(redact(str(self.call.result or "")))
        return self.remark

    @property
    def effect(self) -> EffectClass | None:
        """The effect class; None before the call was checked."""
        return self.call.terms.effect if self.call.terms else None

    @property
    def digest(self) -> str:
        """The action digest, empty before the call was checked."""
        return self.call.terms.digest if self.call.terms else ""

    @property
    def keeps_plan(self) -> bool:
        """Whether its result is the plan of its frame."""
        return self.call.terms is not None and self.call.terms.plan

    @property
    def tells(self) -> bool:
        """Whether it is a message to the requester."""
        return self.call.terms is not None and self.call.terms.tells

    @property
    def attempt(self) -> int:
        """The number of its last attempt."""
        return self.call.attempt

    @property
    def started_at(self) -> datetime | None:
        """The time of its last attempt."""
        return self.call.started_at

    @property
    def until(self) -> datetime | None:
        """The time of the next attempt, or the end of its wait."""
        return self.call.until

    @property
    def was_tried(self) -> bool:
        """Whether it was ever started: an imported run counts its attempts anew."""
        return self.attempt > 0 or any(span.attempt for span in self.spans)

    @property
    def label(self) -> str:
        """The state in words; `moment` or a name may follow."""
        rule = VERDICTS[self.verdict] if self.verdict else None
        match self.state, rule:
            case CallState.ADMITTED, VerdictRule(starts_call=True):
                return "approved, about to start"
            case CallState.RETURNED, VerdictRule(call_label=str(label)) if label:
                return label if self.decided_by else "answered by the policy"
            case CallState.DENIED, VerdictRule(call_label=str(label)) if label:
                return label
            case CallState.CLOSED, _ if self.child:
                return "ended with the run"
            case CallState.CLOSED, _ if self.lost:
                return "in doubt: the run was ended before a person resolved the call"
            case CallState.CLOSED, _ if self.was_tried:
                return "not tried again: the run was ended first"
            case CallState.RETURNED, _ if self.late:
                return "done, by its late outcome"
            case CallState.FAILED, _ if self.late:
                return "failed, by its late outcome"
            case CallState.RETRYING, _ if self.until:
                return "tries again at"
            case CallState.WAITING, _ if self.until:
                return self._wait_label
            case _:
                return CALL_STATES[self.state].label

    @property
    def _wait_label(self) -> str:
        if self.call.terms is not None and self.call.terms.waits == "instance":
            used = self.call.started_at is not None
            return (
                "begun by its instance, which reports by" if used else "for its instance to use by"
            )
        return "waits for an event until" if self.note else "waits until"

    @property
    def waits_until(self) -> datetime | None:
        """The time that follows `label`, for a call that waits."""
        return self.until if self.state in (CallState.RETRYING, CallState.WAITING) else None

    @property
    def decision(self) -> str:
        """The label of the last decision; the name of the reviewer follows, if there is one."""
        rule = VERDICTS[self.verdict] if self.verdict else None
        if rule and rule.replaces_call and not self.decided_by:
            return "answered by the policy, because no person decided in time"
        past = (
            "" if self.verdict is None else select_verdict_rule(self.gate_kind, self.verdict).past
        )
        return past if self.decided_by else past.removesuffix(" by")

    @property
    def gate_kind(self) -> GateKind | None:
        """The kind of its last gate; None if it had none."""
        return next((span.gate_kind for span in reversed(self.spans) if span.for_people), None)

    @property
    def is_settled(self) -> bool:
        """Whether the call is in a final state."""
        return self.state in ENDED

    @property
    def has_side_effects(self) -> bool:
        """Tell whether the call changed the outside world, or may have. Cancelling the run does not undo that."""
        if self.child is not None or (
            self.effect and not EFFECT_CLASSES[self.effect].has_side_effects
        ):
            return False
        effect = CALL_STATES[self.state].effect
        is_replaced = self.verdict is not None and VERDICTS[self.verdict].replaces_call
        if is_replaced or effect is Effect.IF_TRIED:
            return self.was_tried
        return effect is Effect.POSSIBLE

    def list_shown_spans(self) -> list[Span]:
        """Return the spans, or one placeholder for a call that has not started."""
        if self.spans or self.child:
            return self.spans
        return [
            self._span(SpanKind.TOOL, None, _PLACEHOLDERS.get(self.state, SpanState.NOT_CHECKED))
        ]

    def add_event(self, event: e.CallEvent | e.WaitEvent, at: datetime) -> None:
        """Add what an event tells about the call, besides the opening of a gate."""
        match event:
            case e.ToolStarted():
                self.remark = ""
                self._add(SpanKind.TOOL, event.at, SpanState.STARTED).attempt = event.attempt
            case e.ToolReturned():
                self._end_last(SpanKind.TOOL, at, SpanState.DONE)
            case e.CallRefused():
                span = self._add(SpanKind.TOOL, at, SpanState.STARTED)
                span.finish(at, SpanState.REFUSED, error=event.reason)
            case e.ToolFailed():
                self._end_last(SpanKind.TOOL, at, SpanState.FAILED, event.error)
            case e.OutcomeUnknown():
                self.remark, self.lost = redact(event.error), True
                kind = SpanKind.TOOL if event.attempt else SpanKind.AWAIT
                self._end_last(kind, at, SpanState.OUTCOME_LOST, event.error)
            case e.OutcomeArrived():
                self._settle_late(event, at)
            case e.RetryScheduled():
                self.remark = redact(event.error)
                state = SpanState.FAILED_ONCE
                if event.cause == "lost":
                    state = SpanState.WORKER_LOST
                self._end_last(SpanKind.TOOL, at, state, event.error)
                if event.until is not None and event.until > at:
                    self._add(SpanKind.WAIT, at, SpanState.BACKING_OFF).until = event.until
            case e.WaitStarted():
                match = json.dumps(redact(event.match), ensure_ascii=False)
                is_bare = match == "{}" or not event.event  # without an event only for a time
                self.remark = event.event if is_bare else f"{event.event} with {match}"
                if event.at is not None:
                    self._end_last(SpanKind.AWAIT, at, SpanState.EVENT_CAME)
                state = SpanState.AWAITS_EVENT if event.event else SpanState.AWAITS_TIME
                span = self._add(SpanKind.AWAIT, at, state)
                span.until, span.reason = event.until, self.remark
            case e.WaitEnded():
                self._end_wait(event, at)
            case e.GateDecided():
                self.verdict, self.decided_by = event.verdict, event.by
                self.remark = redact(event.reason)
            case e.GateClosed():
                self.remark = redact(event.reason)
            case _:
                pass

    def open_gate(
        self, gate: UUID, kind: GateKind, at: datetime, position: int, facts: GateFacts | None
    ) -> Span:
        """Open a gate of the call: for the first time, or again because the approved action changed."""
        if not kind.is_in_doubt:
            self.remark, self.decided_by, self.verdict = "", "", None
        span = self._add(SpanKind.PERSON, at, SpanState.GATE_OPEN)
        span.open_gate(gate, kind, position, facts)
        return span

    def reopen(self) -> None:
        """Forget the end of the run, which is tried again or was imported."""
        self.is_over = False
        if self.call.state is CallState.PROPOSED:
            self.remark, self.verdict = "", None

    def end(self, at: datetime) -> None:
        """End the open spans with the run."""
        for span in self.spans:
            span.finish(at, SpanState.WITH_RUN)

    def _settle_late(self, event: e.OutcomeArrived, at: datetime) -> None:
        self.remark, self.late = "", True
        state = SpanState.LATE_DONE if event.outcome == "returned" else SpanState.LATE_FAILED
        spans = [span for span in self.spans if span.gate is not None and span.gate == event.gate]
        for span in spans or [self._add(SpanKind.TOOL, at, SpanState.STARTED)]:
            span.finish(at, state, error=event.error)

    def _end_wait(self, event: e.WaitEnded, at: datetime) -> None:
        match event.outcome:
            case "again":
                self._end_last(SpanKind.WAIT, at, SpanState.BACKED_OFF)
            case "arrived" | "timed_out":
                self.remark = ""
                is_event = event.outcome == "arrived"
                state = SpanState.EVENT_CAME if is_event else SpanState.TIME_CAME
                self._end_last(SpanKind.AWAIT, at, state)
            case "refused" if self.call.started_at is not None:  # its instance reported a failure
                self._end_last(SpanKind.AWAIT, at, SpanState.FAILED, str(event.result))
            case "refused":
                span = self._add(SpanKind.AWAIT, at, SpanState.AWAITS_TIME)
                span.finish(at, SpanState.NOTHING_TO_AWAIT, error=str(event.result))
            case "closed":
                self._end_last(SpanKind.AWAIT, at, SpanState.WITH_RUN)

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
        step, depth = f"{self.frame}/{self.id}", compute_depth(self.frame) + 1
        return Span(kind=kind, step=step, name=self.tool, depth=depth, start=at, state=state)


def derive_facts(calls: Iterable[CallRecord]) -> dict[str, str]:
    """Return a fact by step, of calls and of the frames that work on them; empty if a call has none.

    It is made of the first short arguments that differ among the calls of a tool.
    """
    of_tools: dict[str, list[tuple[str, dict[str, Any]]]] = defaultdict(list)
    for call in calls:
        if isinstance(args := call.args, dict):
            of_tools[call.tool].append((call.child or f"{call.frame}/{call.id}", args))
    facts = {}
    for steps in of_tools.values():
        values: dict[str, set[str]] = defaultdict(set)
        for _, args in steps:
            for name, value in args.items():
                values[name].add(json.dumps(value, sort_keys=True))
        for step, args in steps:
            differing = {name: args[name] for name in args if len(values[name]) > 1}
            facts[step] = _format_fact(differing or args)
    return facts


def _format_fact(args: dict[str, Any]) -> str:
    """Join the first short values. A number has its name before it; a long text is cut if there is nothing shorter."""
    texts, separator = list[str](), " → "
    long = ""
    for name, value in args.items():
        if isinstance(value, str) and value.strip() and not _ID.fullmatch(value):
            text = " ".join(value.split())
        elif isinstance(value, int | float):
            text, separator = f"{name.replace('_', ' ')} {json.dumps(value)}", ", "
        else:
            continue
        if len(text) <= MAX_CHARACTERS:
            texts.append(text)
        else:
            long = long or f"{text[:MAX_CHARACTERS]}…"
    return separator.join(texts[:MAX_VALUES]) or long

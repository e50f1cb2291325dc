"""Observes the reducer over a journal: frames, calls and spans for people, in one pass.

Their states are those of the reducer. The records add times, labels, order, messages and errors.

Nothing is verified, because a page must also show a quarantined run. But no state follows from an entry that cannot be
read, or that the reducer refuses: it is listed, and the trace ends before it.

A model call starts when its frame is opened or the last call of its turn is settled. No entry records that, so the
entry that caused it gives the time.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import accumulate, pairwise
from typing import Any
from uuid import UUID

from runtime.core.run import events as e
from runtime.core.run.accounting import advance_clock
from runtime.core.run.continuation import (
    Continuation,
    Denial,
    Frame,
    FrameState,
    Phase,
    Undelivered,
)
from runtime.core.run.continuation import replace as replace_state
from runtime.core.run.gates import is_blocked_by_gate
from runtime.core.run.reducer import evolve
from runtime.core.values.enums import GateKind
from runtime.core.values.errors import CoreError
from runtime.core.values.ids import ROOT
from runtime.core.values.verdicts import VERDICTS, select_verdict_rule
from runtime.reads import time_limits
from runtime.reads.journal import Beginning, JournalLine, Remaining
from runtime.reads.labels import MessageKind
from runtime.reads.redaction import redact
from runtime.reads.trace.calls import CallRecord
from runtime.reads.trace.forked import copy_frames, describe_change
from runtime.reads.trace.frames import FrameMessage, FrameRecord
from runtime.reads.trace.span import GateFacts, InquiryRecord, Span, SpanKind, SpanState
from runtime.reads.version_diff import list_differences

_FrameEvent = (
    e.ModelReplied | e.Compacted | e.ModelFailed | e.AgentChanged | e.CallEvent | e.WaitEvent
)

MIN_WAIT_SHOWN = timedelta(seconds=1)  # shorter waits for a worker have no span


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The cancellation of a run; `by` is empty for the engine itself."""

    by: str
    reason: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The origin of a run: entry `position` of run `of`, or another installation if `of` is None.

    `change` is what the person `by` changed in a fork, empty for an exact copy.
    """

    by: str
    of: UUID | None = None
    position: int = 0
    change: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPause:
    """The pause of a run; `reason` may be empty."""

    by: str
    reason: str
    at: datetime


def fold(
    journal: Remaining,
    *,
    gates: Mapping[UUID, GateFacts] | None = None,
    start: datetime | None = None,
    provider_errors: bool = False,
) -> "Trace":
    """Fold a journal. `gates` has the facts that are not in it, `start` is when the run began to wait.

    `provider_errors` keeps the error texts of providers, which may quote data that only admins may read.
    """
    trace = Trace(journal, gates=gates or {}, start=start, provider_errors=provider_errors)
    for line in journal.lines:
        trace.read(line)
    if trace.exported:
        trace.close("exported")
    return trace


class Trace:
    """The frames so far. `now` is the state after the last entry from which one follows.

    `unreadable` are the entries that cannot be read, and the first that no state follows from.
    """

    def __init__(
        self,
        journal: Remaining,
        *,
        gates: Mapping[UUID, GateFacts],
        start: datetime | None,
        provider_errors: bool,
    ) -> None:
        self.now = journal.start
        self.frames: dict[str, FrameRecord] = {}
        self.unreadable: list[int] = []
        self.ending: Ending | None = None
        self.origin: Origin | None = None
        self.exported = False
        self.pause: RunPause | None = None
        self.inquiries: dict[UUID, InquiryRecord] = {}
        self.memory: tuple[e.Remembered, ...] = ()
        self.beginning = journal.beginning
        self.start = start or datetime.min.replace(tzinfo=UTC)
        self._keeps_errors = provider_errors
        self._gates = gates
        self._at = self.start
        self._position = 0
        self._early: list[e.MessageReceived | Undelivered] = []  # before the root frame was opened
        self._messages_added = 0
        self._pauses: list[Span] = []
        self._messages: list[Span] = []
        self._queue: Span | None = _make_run_span(SpanKind.QUEUE, self.start, SpanState.QUEUED)
        if journal.beginning is not None and journal.beginning.state is not None:
            self._begin(journal.beginning, journal.lines)

    def take_gates(self, gates: Mapping[UUID, GateFacts]) -> None:
        """Take the facts as they are now, also for the gates that are open."""
        self._gates = gates
        for pending in self.now.pending:
            for span in self.frames[pending.frame].list_gate_spans(pending.gate, pending.call):
                span.take_facts(gates.get(pending.gate))

    @property
    def roots(self) -> list[FrameRecord]:
        """The root frame, once it was opened."""
        return [self.frames[ROOT]] if ROOT in self.frames else []

    @property
    def denials(self) -> Mapping[str, Denial]:
        """The denials that stand, by action digest."""
        return self.now.denials

    def list_spans(self) -> list[Span]:
        """Return all spans in tree order: a frame, then its steps, with a child frame at its call."""
        spans = [self._queue] if self._queue is not None else []
        spans += [*self._pauses, *self._messages]
        for frame in self.roots:
            spans += frame.walk_spans()
        return spans

    def read(self, line: JournalLine) -> None:
        """Observe the events of one line, or list it if no state follows from it."""
        time_limits.check()
        if self.unreadable and line.entry is not None:
            return
        if line.entry is None or line.position != self.now.position + 1:
            self.unreadable.append(line.position)
            return
        self._at, self._position = line.entry.at, line.position
        try:
            states = tuple(accumulate(line.entry.events, evolve, initial=self.now))
            for event, (before, after) in zip(line.entry.events, pairwise(states), strict=True):
                self.observe(before, event, after)
        except (CoreError, LookupError):
            self.unreadable.append(line.position)
            return
        reached = replace_state(states[-1], position=line.position, head=line.mac)
        self.now = advance_clock(self.now, reached, line.entry.at)

    def observe(self, before: Continuation, event: e.Event, after: Continuation) -> None:
        """Take the states that an event made, and add its times, labels and messages."""
        changed = [
            frame for name, frame in after.frames.items() if frame is not before.frames.get(name)
        ]
        for frame in changed:
            if frame.id in self.frames:
                self.frames[frame.id].take(frame)
        if isinstance(event, _FrameEvent):
            self._add_frame_event(self.frames[event.frame], event, before)
        else:
            self._add_run_event(event, after)
        stops = isinstance(event, e.GateDecided) and VERDICTS[event.verdict].ends_run
        if after.phase is not Phase.STARTED or stops:  # the end of the run follows a stop
            return
        was_blocked = before.phase is not after.phase or before.pending is not after.pending
        self._call_models(after, after.frames.values() if was_blocked else changed)

    def close(self, outcome: str) -> None:
        """End the root frame, and close all calls that have not finished."""
        for frame in self.frames.values():
            if frame.id == ROOT:
                frame.outcome = outcome
            frame.close_calls()

    def _add_run_event(self, event: e.Event, after: Continuation) -> None:
        match event:
            case e.RunStarted():
                self.memory = after.memory
            case e.MemorySummarised():
                self.memory += after.memory
                self.frames[event.frame].add_summary(self._at, event.model)
            case e.FrameOpened():
                self._open_frame(event, after)
            case e.FrameClosed():
                self._close_frame(event)
            case e.Paused():
                self._add_pause(event)
            case e.Resumed():
                self.pause = None
                self._end_pauses(SpanState.RESUMED)
                self._decide_on_run(event.by, f"Resumed the run{_format_reason(event.reason)}")
            case e.MessageReceived():
                self._receive(event)
            case e.GateExtended():
                until = event.until.astimezone(UTC)
                extended = f"Extended a deadline to {until:%Y-%m-%d %H:%M} UTC: {event.reason}"
                self._decide_on_run(event.by, extended)
            case e.Completed():
                self._end_run(SpanState.ANSWERED)
            case e.Failed():
                self._end_run(SpanState.FAILED)
            case e.Cancelled():
                self._end_run(SpanState.CANCELLED)
            case e.Retried():
                self.ending = None
                self._reopen(after)
                self._decide_on_run(
                    event.by, f"Tried the failed run again{_format_reason(event.reason)}"
                )
            case e.Cancelling():
                self.ending = Ending(by=event.by, reason=redact(event.reason), at=self._at)
                self._decide_on_run(event.by or "the engine", f"Ended the run: {event.reason}")
            case e.Forked():
                self._fork(event, after)
            case e.Exported():
                self.exported = True
                self._end_spans(SpanState.EXPORTED)
            case e.Imported():
                self.exported = False
                self.origin = Origin(by=event.by)
                self._reopen(after)
            case e.QuestionAsked() | e.QuestionAnswered() | e.QuestionFailed():
                self._inquire(event)
            case _:
                pass

    def _begin(self, beginning: Beginning, lines: tuple[JournalLine, ...]) -> None:
        """Begin with the frames of the state at which a shortened journal begins."""
        self._at = next((line.entry.at for line in lines if line.entry), beginning.at)
        self._position, self._queue = beginning.position, None
        try:
            self._adopt(self.now, self.now.requester)
            self._call_models(self.now, self.now.frames.values())
            for pending in self.now.pending:
                self._open_gate(pending.gate, pending.kind, pending.frame, pending.call)
        except (CoreError, LookupError):
            self.frames.clear()
            self.unreadable.append(beginning.position)
            return
        if self.now.paused is not None:
            self._add_pause(e.Paused(by=self.now.paused.by, reason=self.now.paused.reason))

    def _fork(self, event: e.Forked, after: Continuation) -> None:
        self.origin = Origin(by=event.by, of=event.of, position=event.position)
        self._queue = None
        self._adopt(after, event.state.get("requester", ""))
        if event.change is not None:
            change = describe_change(after, event.change)
            self.origin = replace(self.origin, change=change)
            self._decide_on_run(event.by, f"Changed {change} in this fork")

    def _adopt(self, state: Continuation, requester: str) -> None:
        """Adopt the frames of a state, with their messages."""
        self.memory = state.memory
        for frame, utterances in copy_frames(state, self._at, requester):
            self.frames[frame.id] = frame
            for message in utterances:
                self._add_message(
                    frame,
                    message.kind,
                    message.by,
                    message.value,
                    turn=message.turn,
                    reported_by=message.reported_by,
                )
        for undelivered in state.unheard:
            self._receive(undelivered)

    def _reopen(self, after: Continuation) -> None:
        """Reopen the frames of a run that is tried again or was imported."""
        for frame in after.frames:
            self.frames[frame].reopen()

    def _add_pause(self, event: e.Paused) -> None:
        self.pause = RunPause(by=event.by, reason=redact(event.reason), at=self._at)
        span = _make_run_span(SpanKind.PAUSE, self._at, SpanState.PAUSED)
        span.by, span.reason = event.by, self.pause.reason
        self._pauses.append(span)
        self._decide_on_run(event.by, f"Paused the run{_format_reason(event.reason)}")

    def _open_frame(self, event: e.FrameOpened, after: Continuation) -> None:
        if self._queue is not None:
            self._queue.finish(self._at, SpanState.CLAIMED)
            if self._at - self.start < MIN_WAIT_SHOWN:
                self._queue = None
        frame = self.frames[event.frame] = FrameRecord(frame=after.frame(event.frame))
        frame.open(self._at)
        if event.instructions:
            self._add_message(frame, "instructions", frame.agent, event.instructions)
        caller = after.requester
        if event.parent is not None and event.call is not None:
            parent = self.frames[event.parent]
            parent.delegate(event.call, frame)
            caller = parent.agent
        self._add_message(frame, "input", caller, event.input)
        if frame.id == ROOT:
            early, self._early = self._early, []
            for message in early:
                self._add_message(frame, "message", message.by, message.text)

    def _close_frame(self, event: e.FrameClosed) -> None:
        self.frames[event.frame].close(self._at, event.outcome)
        state = self.frames[event.frame].frame
        if state.parent is not None and state.call is not None:
            parent = self.frames[state.parent]
            kind: MessageKind = "result" if event.outcome == "answered" else "fault"
            self._add_message(parent, kind, parent.by_id[state.call].tool, event.content)

    def _call_models(self, now: Continuation, frames: Iterable[Frame]) -> None:
        """Begin the model calls that come next in these frames."""
        for frame in frames:
            if frame.state is FrameState.ASKING and not is_blocked_by_gate(now, frame.id):
                record = self.frames[frame.id]
                if not record.is_calling_model:
                    record.call_model(self._at)

    def _add_frame_event(
        self,
        frame: FrameRecord,
        event: _FrameEvent,
        before: Continuation,
    ) -> None:
        match event:
            case e.ModelReplied():
                self._add_reply(frame, event)
            case e.Compacted():
                frame.add_summary(self._at, event.model)
                self._add_message(frame, "summary", event.model or frame.agent, event.summary)
            case e.ModelFailed():
                frame.fail_model(self._at, event, self._for_admins(event.said))
                self._add_message(frame, "fault", frame.agent, event.error)
            case e.AgentChanged():
                frame.change_version(self._at)
                changes = list_differences(event.changes)
                self._add_message(frame, "release", frame.agent, changes, reported_by=event.by)
                if event.instructions:
                    self._add_message(frame, "instructions", frame.agent, event.instructions)
            case e.RetryScheduled(call=None):
                frame.schedule_retry(self._at, event, self._for_admins(event.said))
                model = f"the model of {frame.agent}"
                self._add_message(frame, "retry", model, event.error, until=event.until)
            case e.WaitEnded(call=None):
                frame.end_wait(self._at)
            case e.GateOpened():
                span = self._open_gate(event.gate, event.kind, event.frame, event.call)
                span.reason = redact(event.reason)
                if not event.call:
                    self._add_message(frame, "frame_gate", frame.agent, event.reason)
            case e.GateDecided(call="") | e.GateClosed(call=""):
                frame.open_gates -= 1
                self._end_gate(frame, event)
                if isinstance(event, e.GateDecided):
                    self._add_decision(frame, event, frame.agent)
            case _:
                call = frame.by_id[event.call or ""]
                call.add_event(event, self._at)
                self._add_call_event(frame, call, event, before)

    def _receive(self, message: e.MessageReceived | Undelivered) -> None:
        root = self.frames.get(ROOT)
        if root is None:
            self._early.append(message)
        else:
            is_review = isinstance(message, e.MessageReceived) and message.reviewer
            self._add_message(root, "review" if is_review else "message", message.by, message.text)
        span = _make_run_span(SpanKind.MESSAGE, self._at, SpanState.UNDELIVERED)
        span.by, span.reason = message.by, redact(message.text)
        self._messages.append(span)

    def _add_reply(self, frame: FrameRecord, event: e.ModelReplied) -> None:
        frame.deliver(event.heard)
        for span in self._undelivered()[: event.heard]:  # only the root's model receives messages
            span.finish(self._at, SpanState.DELIVERED)
        frame.add_reply(self._at, event)
        answer = event.text if event.output is None else event.output
        if answer != "":
            self._add_message(frame, "text", frame.agent, answer, reported_by=event.given_by)
        for proposal in event.calls:
            value = {"tool": proposal.tool, "args": proposal.args}
            self._add_message(frame, "call", frame.agent, value, reported_by=event.given_by)

    def _open_gate(self, gate: UUID, kind: GateKind, frame: str, call: str) -> Span:
        owner = self.frames[frame].by_id[call] if call else self.frames[frame]
        return owner.open_gate(gate, kind, self._at, self._position, self._gates.get(gate))

    def _end_gate(self, frame: FrameRecord, event: e.GateDecided | e.GateClosed) -> None:
        for span in frame.list_gate_spans(event.gate, event.call):
            if isinstance(event, e.GateDecided):
                span.decide_gate(event, self._at, self._gates.get(event.gate))
            else:
                span.close_gate(event, self._at)

    def _add_call_event(
        self,
        frame: FrameRecord,
        call: CallRecord,
        event: e.CallEvent | e.WaitEvent,
        before: Continuation,
    ) -> None:
        """Add the messages and the end of a gate that an event of a call brings."""
        match event:
            case e.GateDecided():
                if event.edit is not None and (terms := before.call(frame.id, call.id).terms):
                    call.replaced = terms.digest
                self._end_gate(frame, event)
                self._add_decision(frame, event, call.tool, call.gate_kind)
                if VERDICTS[event.verdict].carries == "result":
                    self._add_message(
                        frame, "result", call.tool, call.raw_result, reported_by=event.by
                    )
            case e.GateClosed():
                self._end_gate(frame, event)
            case e.ToolReturned() | e.WaitEnded(outcome="arrived" | "timed_out"):
                self._add_message(frame, "result", call.tool, call.raw_result)
            case (
                e.CallRefused()
                | e.ToolFailed()
                | e.OutcomeUnknown()
                | e.WaitEnded(outcome="refused")
            ):
                self._add_message(frame, "fault", call.tool, call.note)
            case e.OutcomeArrived():
                outcome = call.raw_result if event.outcome == "returned" else event.error
                self._add_message(frame, "late", call.tool, outcome)
            case e.RetryScheduled():
                self._add_message(frame, "retry", call.tool, event.error, until=event.until)
            case _:
                pass

    def _inquire(self, event: e.QuestionAsked | e.QuestionAnswered | e.QuestionFailed) -> None:
        """Follow an inquiry. Its answer is no message of the frame, but the transcript has it at its place."""
        frame, inquiry = self.frames[event.frame], self.inquiries.get(event.question)
        match event:
            case e.QuestionAsked():
                self._add_message(frame, "question", event.by, event.text)
                self.inquiries[event.question] = InquiryRecord(
                    id=event.question,
                    gate=event.gate,
                    by=event.by,
                    text=redact(event.text),
                    at=self._at,
                )
            case e.QuestionAnswered():
                self._add_message(frame, "answer", frame.agent, event.text)
                if inquiry is not None:  # a removed entry may have asked it
                    inquiry.answer, inquiry.sealed = redact(event.text), event.text
                    inquiry.answered_at = self._at
            case e.QuestionFailed():
                self._add_message(frame, "fault", frame.agent, event.error)
                if inquiry is not None:
                    inquiry.error, inquiry.answered_at = redact(event.error), self._at

    def _add_decision(
        self, frame: FrameRecord, event: e.GateDecided, subject: str, kind: GateKind | None = None
    ) -> None:
        text = f"{select_verdict_rule(kind, event.verdict).title} {subject}{_format_reason(event.reason)}"
        by = event.by or "the deadline"
        if event.allowance is not None:
            by = f"the allowance of {' and '.join(event.allowance.by)}"
        self._add_message(frame, "decision", by, text)

    def _decide_on_run(self, by: str, text: str) -> None:
        for root in self.roots:
            self._add_message(root, "decision", by, text)

    def _add_message(
        self,
        frame: FrameRecord,
        kind: MessageKind,
        by: str,
        content: Any,
        *,
        turn: int | None = None,
        until: datetime | None = None,
        reported_by: str = "",
    ) -> None:
        self._messages_added += 1
        frame.messages.append(
            FrameMessage(
                order=self._messages_added,
                turn=frame.turn if turn is None else turn,
                agent=frame.agent,
                kind=kind,
                by=by,
                content=content,
                at=self._at,
                until=until,
                reported_by=reported_by,
            )
        )

    def _undelivered(self) -> list[Span]:
        return [span for span in self._messages if span.end is None]

    def _end_run(self, state: SpanState) -> None:
        self.close(state.label)
        self._end_spans(state)

    def _end_spans(self, state: SpanState) -> None:
        self._end_pauses(SpanState.WITH_RUN)
        for span in self._undelivered():
            span.finish(self._at, SpanState.NOT_DELIVERED)
        for frame in self.frames.values():
            frame.end(self._at, state if frame.id == ROOT else SpanState.WITH_RUN)

    def _end_pauses(self, state: SpanState) -> None:
        for span in self._pauses:
            span.finish(self._at, state)

    def _for_admins(self, text: str) -> str:
        return redact(text) if self._keeps_errors else ""


def _make_run_span(kind: SpanKind, at: datetime, state: SpanState) -> Span:
    return Span(kind=kind, step="", name="", depth=0, start=at, state=state)


def _format_reason(reason: str) -> str:
    return f": {reason}" if reason else ""

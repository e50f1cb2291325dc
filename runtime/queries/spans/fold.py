"""Folds a journal into frames, calls and spans for people, in one pass.

The engine verifies each entry and rejects unknown ones. A page must show all stored data, above all of a
quarantined run: unreadable entries are listed, events without a frame are skipped, and nothing is verified.

A model call starts when its frame is opened or the last call of its turn is settled. No entry records that, so the
entry that caused it gives the time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, assert_never
from uuid import UUID

from runtime.core import events as e
from runtime.core.call_states import CALL_STATES, CallState
from runtime.core.continuation import MAX_DEPTH, Continuation, Denial, Undelivered
from runtime.core.enums import GateKind
from runtime.core.errors import CoreError
from runtime.core.ids import ROOT, call_id, child_frame, depth_of
from runtime.core.machine.calls.revisions import denial_of
from runtime.core.machine.failed_runs import uncounted
from runtime.core.machine.forks import state_of
from runtime.core.verdicts import VERDICTS, words_at
from runtime.queries import time_limits
from runtime.queries.journal import Beginning, JournalLine, Remaining
from runtime.queries.labels import MessageKind
from runtime.queries.redaction import redact
from runtime.queries.spans.calls import CallRecord
from runtime.queries.spans.forked import Utterance, changed_text, copied, open_gates
from runtime.queries.spans.frames import FrameRecord, Message, Retry
from runtime.queries.spans.inquiries import InquiryRecord, follow
from runtime.queries.spans.span import GateFacts, Span, Usage
from runtime.queries.spans.states import SpanKind, SpanState
from runtime.queries.version_diff import differences

MIN_WAIT_SHOWN = timedelta(seconds=1)  # shorter waits for a worker have no span

_TO_COME = frozenset(state for state, rule in CALL_STATES.items() if rule.is_to_come)


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
class Pause:
    """The pause of a run; `reason` may be empty."""

    by: str
    reason: str
    at: datetime


def fold(
    journal: Remaining,
    *,
    gates: Mapping[UUID, GateFacts] | None = None,
    start: datetime | None = None,
    whole: bool = False,
) -> "Fold":
    """Fold a journal. `gates` has the facts that are not in it, `start` is when the run began to wait.

    `whole` keeps the error texts of providers, which may quote data that only admins may read.
    """
    found = Fold(gates=gates or {}, start=start, whole=whole)
    found.begin(journal)
    for line in journal.lines:
        found.consume(line)
    if found.exported:
        found.close("exported")
    return found


class Fold:
    """The frames so far."""

    def __init__(
        self, *, gates: Mapping[UUID, GateFacts], start: datetime | None, whole: bool
    ) -> None:
        self.frames: dict[str, FrameRecord] = {}
        self.unreadable: list[int] = []
        self.ending: Ending | None = None
        self.origin: Origin | None = None
        self.exported = False
        self.pause: Pause | None = None
        self.denials: dict[str, Denial] = {}
        self.inquiries: dict[UUID, InquiryRecord] = {}
        self.memory: tuple[e.Remembered, ...] = ()
        self.beginning: Beginning | None = None
        self.start = start or datetime.min.replace(tzinfo=UTC)
        self._whole = whole
        self._gates = gates
        self._at = self.start
        self._position = 0
        self._requester = ""
        self._early: list[e.MessageReceived | Undelivered] = []  # before the root frame was opened
        self._said = 0
        self._pauses: list[Span] = []
        self._messages: list[Span] = []
        self._queue: Span | None = _of_run(SpanKind.QUEUE, self.start, SpanState.QUEUED)

    @property
    def roots(self) -> list[FrameRecord]:
        """The root frame, and any frame whose parent could not be read."""
        return [frame for frame in self.frames.values() if self._caller(frame) is None]

    def spans(self) -> list[Span]:
        """Return all spans in tree order: a frame, then its steps, with a child frame at its call."""
        spans = [self._queue] if self._queue is not None else []
        spans += [*self._pauses, *self._messages]
        for frame in self.roots:
            spans += frame.spans()
        return spans

    def consume(self, line: JournalLine) -> None:
        """Fold one line. An unreadable entry is only listed."""
        time_limits.check()
        if line.entry is None:
            self.unreadable.append(line.position)
            return
        self._at, self._position = line.entry.at, line.position
        for event in line.entry.events:
            self._event(event)

    def begin(self, journal: Remaining) -> None:
        """Begin with the frames of the state at which a shortened journal begins."""
        self.beginning = journal.beginning
        if self.beginning is None or (state := self.beginning.state) is None:
            return
        first = next((line.entry for line in journal.lines if line.entry), None)
        self._at = first.at if first else self.beginning.at
        self._position = self.beginning.position
        self._requester, self._queue = state.requester, None
        try:
            frames = list(copied(state, self._at))
        except LookupError:
            return
        self._adopt(state, frames)
        if state.paused is not None:
            self._paused(e.Paused(by=state.paused.by, reason=state.paused.reason))
        for event in open_gates(state):
            frame = self.frames.get(event.frame)
            if frame is not None:
                self._frame_event(frame, event)

    def close(self, outcome: str) -> None:
        """End the root frames, and close all calls that have not finished."""
        for frame in self.frames.values():
            if frame.parent is None:
                frame.outcome = outcome
            frame.close_calls(_TO_COME)

    def _event(self, event: e.Event) -> None:
        match event:
            case e.RunStarted():
                self._requester = event.requester
                self.memory = event.memory
            case e.FrameOpened():
                self._opened(event)
            case e.Paused():
                self._paused(event)
            case e.Resumed():
                self.pause = None
                self._end_pauses(SpanState.RESUMED)
                self._decide_on_run(event.by, f"Resumed the run{_because(event.reason)}")
            case e.MessageReceived():
                self._received(event)
            case e.Completed():
                self._ended(SpanState.ANSWERED)
            case e.Failed():
                self._ended(SpanState.FAILED)
            case e.Retried():
                self._retried(event)
            case e.Cancelling():
                self.ending = Ending(by=event.by, reason=redact(event.reason), at=self._at)
                self._decide_on_run(event.by or "the engine", f"Ended the run: {event.reason}")
            case e.Cancelled():
                self._ended(SpanState.CANCELLED)
            case e.Forked():
                self._forked(event)
            case e.Exported():
                self.exported = True
                self._end_spans(SpanState.EXPORTED)
            case e.Imported():
                self._imported(event)
            case e.BudgetExceeded() | e.BudgetGranted() | e.AnswerDropped():
                return
            case e.QuestionAsked() | e.QuestionAnswered() | e.QuestionFailed():
                self._inquiry(event)
            case _:
                frame = self.frames.get(event.frame)
                if frame is not None:
                    self._frame_event(frame, event)

    def _forked(self, event: e.Forked) -> None:
        self.origin = Origin(by=event.by, of=event.of, position=event.position)
        self._queue = None
        try:
            state = state_of(event)
            frames = list(copied(state, self._at))
        except (CoreError, LookupError):
            return
        self._adopt(state, frames)
        if event.change is not None:
            what = changed_text(state, event.change)
            self.origin = replace(self.origin, change=what)
            self._decide_on_run(event.by, f"Changed {what} in this fork")

    def _adopt(
        self, state: Continuation, frames: list[tuple[FrameRecord, list[Utterance]]]
    ) -> None:
        """Adopt the frames of a state, with their messages."""
        self.denials = dict(state.denials)
        self.memory = state.memory
        for frame, said in frames:
            self.frames[frame.id] = frame
            for one in said:
                self._add_message(
                    frame, one.kind, one.by, one.value, turn=one.turn, reported_by=one.reported_by
                )
        for unheard in state.unheard:
            self._received(unheard)

    def _imported(self, event: e.Imported) -> None:
        self.exported = False
        self.origin = Origin(by=event.by)
        for frame in self.frames.values():
            frame.reopen()
            for call in frame.calls:
                if call.state in _TO_COME and call.state is not CallState.DELEGATED:
                    call.become(CallState.PROPOSED)
                    call.verdict = None

    def _retried(self, event: e.Retried) -> None:
        self.ending = None
        self.denials = uncounted(self.denials)
        for frame in self.frames.values():
            frame.retried(self._at)
        self._decide_on_run(event.by, f"Tried the failed run again{_because(event.reason)}")

    def _paused(self, event: e.Paused) -> None:
        self.pause = Pause(by=event.by, reason=redact(event.reason), at=self._at)
        span = _of_run(SpanKind.PAUSE, self._at, SpanState.PAUSED)
        span.by, span.reason = event.by, self.pause.reason
        self._pauses.append(span)
        self._decide_on_run(event.by, f"Paused the run{_because(event.reason)}")

    def _opened(self, event: e.FrameOpened) -> None:
        if self._queue is not None:
            self._queue.finish(self._at, SpanState.CLAIMED)
            if self._at - self.start < MIN_WAIT_SHOWN:
                self._queue = None
        parent = self.frames.get(event.parent or "")
        frame = FrameRecord(
            id=event.frame,
            agent=event.agent,
            fingerprint=event.fingerprint,
            plan=event.plan,
            parent=event.parent,
            call=event.call,
            is_item=event.item,
            prompt=event.pinned,
        )
        frame.open(self._at)
        self.frames[frame.id] = frame
        if event.instructions:
            self._add_message(frame, "instructions", frame.agent, event.instructions)
        self._add_message(frame, "input", parent.agent if parent else self._requester, event.input)
        if frame.id == ROOT:
            early, self._early = self._early, []
            for one in early:
                self._add_message(frame, "message", one.by, one.text)
        call = self._caller(frame)
        if call is not None:
            call.state = CallState.DELEGATED
            self.frames[call.frame].delegate(call, frame)

    def _frame_event(
        self, frame: FrameRecord, event: e.FrameEvent | e.CallEvent | e.WaitEvent
    ) -> None:
        match event:
            case e.ModelReplied():
                self._replied(frame, event)
            case e.Compacted():
                frame.compacted(self._at, event.model)
                self._add_message(frame, "summary", event.model or frame.agent, event.summary)
            case e.MemorySummarised():
                frame.compacted(self._at, event.model)
                self.memory += (
                    e.Remembered(
                        run=UUID(int=0),
                        kind="summary",
                        by=frame.agent,
                        at=event.at,
                        digest=event.digest,
                    ),
                )
            case e.ModelFailed():
                frame.model_failed(self._at, event, self._for_admins(event.said))
                self._add_message(frame, "fault", frame.agent, event.error)
            case e.AgentChanged():
                frame.fingerprint, frame.prompt = event.fingerprint, event.pinned
                frame.changed(self._at)
                changes = differences(event.changes)
                self._add_message(frame, "release", frame.agent, changes, reported_by=event.by)
                if event.instructions:
                    self._add_message(frame, "instructions", frame.agent, event.instructions)
            case e.FrameClosed():
                frame.close(self._at, event.outcome)
                self._close_call(frame, event)
            case e.RetryScheduled(call=None):
                self._model_retries(frame, event)
            case e.WaitEnded(call=None):
                frame.model_called_again(self._at)
            case e.GateOpened(call="") | e.GateDecided(call="") | e.GateClosed(call=""):
                self._frame_gate(frame, event)
            case _:
                call = frame.by_id.get(event.call or "")
                if call is not None:
                    self._call_event(frame, call, event)
                    self._next_turn(frame)

    def _received(self, message: e.MessageReceived | Undelivered) -> None:
        """Add a message. The model of a root that has answered is called again."""
        root = self.frames.get(ROOT)
        if root is None:
            self._early.append(message)
        else:
            reviewer = isinstance(message, e.MessageReceived) and message.reviewer
            self._add_message(root, "review" if reviewer else "message", message.by, message.text)
            if root.answered:
                root.call_model(self._at)
        span = _of_run(SpanKind.MESSAGE, self._at, SpanState.UNDELIVERED)
        span.by, span.reason = message.by, redact(message.text)
        self._messages.append(span)

    def _replied(self, frame: FrameRecord, event: e.ModelReplied) -> None:
        frame.deliver(event.heard)
        for span in self._undelivered()[: event.heard]:  # only the root's model receives messages
            span.finish(self._at, SpanState.DELIVERED)
        calls = [
            CallRecord(
                id=call_id(frame.turn + 1, index),
                frame=frame.id,
                agent=frame.agent,
                tool=proposal.tool,
                args=redact(proposal.args),
            )
            for index, proposal in enumerate(event.calls)
        ]
        for call in calls if event.given_by else ():
            call.give(event.given_by)
        usage = Usage(
            input=event.usage.get("input_tokens", 0),
            output=event.usage.get("output_tokens", 0),
            cost=event.cost,
        )
        frame.replied(self._at, event.model, calls, usage, given_by=event.given_by)
        said = event.text if event.output is None else event.output
        if said != "":
            self._add_message(frame, "text", frame.agent, said, reported_by=event.given_by)
        for call in calls:
            value = {"tool": call.tool, "args": call.args}
            self._add_message(frame, "call", frame.agent, value, reported_by=event.given_by)
        if frame.answered and frame.id == ROOT and self._undelivered():
            frame.call_model(self._at)

    def _model_retries(self, frame: FrameRecord, event: e.RetryScheduled) -> None:
        said = self._for_admins(event.said)
        frame.retry = Retry(
            error=redact(event.error),
            attempt=event.attempt,
            until=event.until,
            since=event.since,
            said=said,
        )
        frame.model_retries(self._at, event, said)
        what = f"the model of {frame.agent}"
        self._add_message(frame, "retry", what, event.error, until=event.until)

    def _close_call(self, frame: FrameRecord, event: e.FrameClosed) -> None:
        call = self._caller(frame)
        if call is None or call.state is CallState.CLOSED:
            return
        parent = self.frames[call.frame]
        if event.outcome == "answered":
            call.state, call.result = CallState.RETURNED, redact(event.content)
            self._add_message(parent, "result", call.tool, event.content)
        else:
            call.state, call.note = CallState.FAILED, redact(event.content)
            self._add_message(parent, "fault", call.tool, event.content)
        self._next_turn(parent)

    def _next_turn(self, frame: FrameRecord) -> None:
        if self.ending is not None or not frame.waits_for_model():
            return
        frame.answered = frame.has_released
        if not frame.answered or (frame.id == ROOT and self._undelivered()):
            frame.call_model(self._at)

    def _call_event(
        self, frame: FrameRecord, call: CallRecord, event: e.CallEvent | e.WaitEvent
    ) -> None:
        match event:
            case e.CallAdmitted():
                call.admitted(event.terms)
            case e.CallPreviewed():
                pass
            case e.GateOpened():
                call.gated(event, self._at, self._position, self._gates.get(event.gate))
            case e.GateDecided():
                call.decided(event, self._at, self._gates.get(event.gate))
                self._add_decision(frame, event, call.tool, call.gate_kind)
                if event.stands:
                    above = (one for one in self.frames.values() if one.is_above(event.frame))
                    apart = any(one.is_item for one in above)
                    denial = denial_of(call.tool, call.id, event, apart=apart)
                    self.denials[call.digest] = denial
                if VERDICTS[event.verdict].carries == "result":
                    self._add_message(frame, "result", call.tool, call.result, reported_by=event.by)
            case e.GateClosed():
                call.gate_closed(event, self._at)
            case e.ToolStarted():
                call.started(event)
            case e.ToolReturned():
                call.returned(event, self._at)
                frame.keep_plan(call)
                self._add_message(frame, "result", call.tool, call.result)
            case e.CallRefused():
                call.refused(event, self._at)
                self._add_message(frame, "fault", call.tool, event.reason)
            case e.ToolFailed():
                call.failed(event, self._at)
                self._add_message(frame, "fault", call.tool, event.error)
            case e.OutcomeUnknown():
                call.in_doubt(event, self._at)
                self._add_message(frame, "fault", call.tool, event.error)
            case e.OutcomeArrived():
                call.arrived(event, self._at)
                came = call.result if event.outcome == "returned" else event.error
                self._add_message(frame, "late", call.tool, came)
            case e.RetryScheduled():
                call.retries(event, self._at)
                self._add_message(frame, "retry", call.tool, event.error, until=event.until)
            case e.WaitStarted():
                call.waits(event, self._at)
            case e.WaitEnded():
                call.waited(event, self._at)
                if event.outcome in ("arrived", "timed_out"):
                    self._add_message(frame, "result", call.tool, call.result)
                elif event.outcome == "refused":
                    self._add_message(frame, "fault", call.tool, call.note)
            case _:
                assert_never(event)

    def _inquiry(self, event: e.QuestionAsked | e.QuestionAnswered | e.QuestionFailed) -> None:
        """Follow an inquiry. Its answer is no message of the frame, but the transcript has it at its place."""
        follow(self.inquiries, event, self._at)
        frame = self.frames.get(event.frame)
        if frame is None:
            return
        match event:
            case e.QuestionAsked():
                self._add_message(frame, "question", event.by, event.text)
            case e.QuestionAnswered():
                self._add_message(frame, "answer", frame.agent, event.text)
            case e.QuestionFailed():
                self._add_message(frame, "fault", frame.agent, event.error)

    def _frame_gate(
        self, frame: FrameRecord, event: e.GateOpened | e.GateDecided | e.GateClosed
    ) -> None:
        gate = self._gates.get(event.gate)
        match event:
            case e.GateOpened():
                frame.gate(event, self._at, self._position, gate)
                self._add_message(frame, "frame_gate", frame.agent, event.reason)
            case e.GateDecided():
                frame.gate_decided(event, self._at, gate)
                self._add_decision(frame, event, frame.agent)
            case e.GateClosed():
                frame.gate_closed(event, self._at)

    def _add_decision(
        self, frame: FrameRecord, event: e.GateDecided, what: str, kind: GateKind | None = None
    ) -> None:
        said = f"{words_at(kind, event.verdict).title} {what}{_because(event.reason)}"
        self._add_message(frame, "decision", _decider(event), said)

    def _decide_on_run(self, by: str, what: str) -> None:
        for frame in self.frames.values():
            if frame.parent is None:
                self._add_message(frame, "decision", by, what)

    def _add_message(
        self,
        frame: FrameRecord,
        kind: MessageKind,
        by: str,
        value: Any,
        *,
        turn: int | None = None,
        until: datetime | None = None,
        reported_by: str = "",
    ) -> None:
        self._said += 1
        frame.messages.append(
            Message(
                order=self._said,
                turn=frame.turn if turn is None else turn,
                agent=frame.agent,
                kind=kind,
                by=by,
                value=redact(value),
                at=self._at,
                until=until,
                reported_by=reported_by,
            )
        )

    def _undelivered(self) -> list[Span]:
        return [span for span in self._messages if span.end is None]

    def _ended(self, state: SpanState) -> None:
        self.close(state.label)
        self._end_spans(state)

    def _end_spans(self, state: SpanState) -> None:
        self._end_pauses(SpanState.WITH_RUN)
        for span in self._undelivered():
            span.finish(self._at, SpanState.NOT_DELIVERED)
        for frame in self.frames.values():
            frame.end(self._at, state if frame.parent is None else SpanState.WITH_RUN)

    def _end_pauses(self, state: SpanState) -> None:
        for span in self._pauses:
            span.finish(self._at, state)

    def _for_admins(self, said: str) -> str:
        return redact(said) if self._whole else ""

    def _caller(self, frame: FrameRecord) -> CallRecord | None:
        """Return the call that `frame` works on; None for a root and for a frame with an impossible parent."""
        parent = self.frames.get(frame.parent or "")
        call = parent.by_id.get(frame.call or "") if parent else None
        if call is None or frame.id != child_frame(call.frame, call.id):
            return None
        return call if depth_of(frame.id) <= MAX_DEPTH else None


def _of_run(kind: SpanKind, at: datetime, state: SpanState) -> Span:
    return Span(kind=kind, step="", name="", depth=0, start=at, state=state)


def _decider(event: e.GateDecided) -> str:
    """Name who decided: a person, the people of an allowance, or the deadline."""
    if event.allowance is not None:
        return f"the allowance of {' and '.join(event.allowance.by)}"
    return event.by or "the deadline"


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""

"""Folds a journal into a transcript for people.

The engine verifies each entry and rejects unknown ones. A page must show all stored data, above all of a
quarantined run: unreadable entries are listed, events without a frame are skipped, and nothing is verified.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, assert_never
from uuid import UUID

from runtime.core import events as e
from runtime.core.continuation import MAX_DEPTH, CallState, Undelivered
from runtime.core.enums import GateKind, Verdict
from runtime.core.errors import CoreError
from runtime.core.ids import ROOT, call_id, child_frame, depth_of
from runtime.core.machine.forks import state_of
from runtime.queries import time_limits
from runtime.queries.journal import JournalLine, read
from runtime.queries.redaction import redacted
from runtime.queries.timeline.calls import awaited
from runtime.queries.transcript.forked import records
from runtime.queries.transcript.state import (
    CallRecord,
    FrameRecord,
    after,
    frame_view,
)
from runtime.queries.transcript.views import (
    Ending,
    Kind,
    Message,
    Origin,
    Pause,
    Retry,
    Transcript,
)
from runtime.queries.version_diff import differences

_TO_COME = frozenset(
    {
        CallState.PROPOSED,
        CallState.ADMITTED,
        CallState.GATED,
        CallState.RETRYING,
        CallState.WAITING,
        CallState.DELEGATED,
    }
)


def transcript(run: UUID, *, whole: bool = False) -> Transcript:
    """Fold the whole journal of a run. The caller has checked that the run may be read, `whole` by an admin."""
    return transcript_of(read(run), whole=whole)


def transcript_of(lines: Iterable[JournalLine], *, whole: bool = False) -> Transcript:
    """Fold lines; `whole` as for `transcript`."""
    fold = _Fold(whole=whole)
    for line in lines:
        fold.take(line)
    return fold.view()


class _Fold:
    """The frames so far, mutable while folding."""

    def __init__(self, *, whole: bool) -> None:
        self.whole = whole
        self.frames: dict[str, FrameRecord] = {}
        self.unreadable: list[int] = []
        self.requester = ""
        self.ending: Ending | None = None
        self.origin: Origin | None = None
        self.exported = False
        self.pause: Pause | None = None
        self.early: list[
            e.MessageReceived | Undelivered
        ] = []  # received before the root frame was opened
        self.at = datetime.min.replace(tzinfo=UTC)
        self.said = 0

    def take(self, line: JournalLine) -> None:
        time_limits.check()
        if line.entry is None:
            self.unreadable.append(line.position)
            return
        self.at = line.entry.at
        for event in line.entry.events:
            self._event(event)

    def view(self) -> Transcript:
        if self.exported:
            self._root_ended("exported")
        roots = [frame for frame in self.frames.values() if self._caller(frame) is None]
        return Transcript(
            roots=tuple(frame_view(frame, self.frames) for frame in roots),
            unreadable=tuple(self.unreadable),
            ending=self.ending,
            origin=self.origin,
            pause=self.pause,
        )

    def _event(self, event: e.Event) -> None:
        match event:
            case e.RunStarted():
                self.requester = event.requester
            case e.FrameOpened():
                self._opened(event)
            case e.Paused():
                self.pause = Pause(by=event.by, reason=redacted(event.reason), at=self.at)
                self._decide_on_run(event.by, f"Paused the run{_because(event.reason)}")
            case e.Resumed():
                self.pause = None
                self._decide_on_run(event.by, "Resumed the run")
            case e.MessageReceived():
                self._received(event)
            case e.Completed():
                self._root_ended("answered")
            case e.Failed():
                self._root_ended("failed")
            case e.Retried():
                self._run_retried(event)
            case e.Cancelling():
                self._cancelling(event)
            case e.Cancelled():
                self._root_ended("cancelled")
            case e.Forked():
                self._forked(event)
            case e.Exported():
                self.exported = True
            case e.Imported():
                self._imported(event)
            case e.BudgetExceeded() | e.BudgetGranted():
                return
            case _:
                frame = self.frames.get(event.frame)
                if frame is not None:
                    self._frame_event(frame, event)

    def _forked(self, event: e.Forked) -> None:
        self.origin = Origin(by=event.by, of=event.of, position=event.position)
        try:
            state = state_of(event)
            copied = list(records(state))
        except (CoreError, LookupError):
            return
        for frame, said in copied:
            self.frames[frame.id] = frame
            for one in said:
                self._say(
                    frame, one.kind, one.by, one.value, turn=one.turn, reported_by=one.reported_by
                )
        for unheard in state.unheard:
            self._received(unheard)

    def _imported(self, event: e.Imported) -> None:
        self.exported = False
        self.origin = Origin(by=event.by)
        for frame in self.frames.values():
            for call in frame.calls.values():
                if call.state in _TO_COME - {CallState.DELEGATED}:
                    call.state, call.until, call.note, call.verdict = (
                        CallState.PROPOSED,
                        None,
                        "",
                        None,
                    )

    def _opened(self, event: e.FrameOpened) -> None:
        parent = self.frames.get(event.parent or "")
        frame = FrameRecord(
            id=event.frame,
            agent=event.agent,
            fingerprint=event.fingerprint,
            plan=event.plan,
            parent=event.parent,
            call=event.call,
        )
        self.frames[frame.id] = frame
        if event.instructions:
            self._say(frame, "instructions", frame.agent, event.instructions)
        self._say(frame, "input", parent.agent if parent else self.requester, event.input)
        if parent is None:
            early, self.early = self.early, []
            for one in early:
                self._received(one)
        call = self._caller(frame)
        if call is not None:
            call.state, call.child = CallState.DELEGATED, frame.id

    def _frame_event(
        self, frame: FrameRecord, event: e.FrameEvent | e.CallEvent | e.WaitEvent
    ) -> None:
        match event:
            case e.ModelReplied():
                self._replied(frame, event)
            case e.Compacted():
                frame.retry = None
                self._say(frame, "summary", event.model or frame.agent, event.summary)
            case e.ModelFailed():
                frame.retry = None
                self._say(frame, "fault", frame.agent, event.error)
            case e.AgentChanged():
                frame.fingerprint = event.fingerprint
                self._say(frame, "release", frame.agent, differences(event.changes))
                if event.instructions:
                    self._say(frame, "instructions", frame.agent, event.instructions)
            case e.FrameClosed():
                frame.outcome = event.outcome
                self._close_call(frame, event)
            case e.RetryScheduled(call=None):
                frame.retry = Retry(
                    error=redacted(event.error),
                    attempt=event.attempt,
                    until=event.until,
                    since=event.since,
                    said=redacted(event.said) if self.whole else "",
                )
                self._retried(frame, f"the model of {frame.agent}", event)
            case e.WaitEnded(call=None):
                if frame.retry is not None:
                    frame.retry = replace(frame.retry, until=None)
            case e.GateOpened(call="") | e.GateDecided(call="") | e.GateClosed(call=""):
                self._halt(frame, event)
            case _:
                call = frame.calls.get(event.call or "")
                if call is not None:
                    self._call_event(frame, call, event)

    def _received(self, message: e.MessageReceived | Undelivered) -> None:
        root = self.frames.get(ROOT)
        if root is None:
            self.early.append(message)
        else:
            self._say(root, "message", message.by, message.text)

    def _replied(self, frame: FrameRecord, event: e.ModelReplied) -> None:
        frame.deliver(event.heard)
        frame.turn += 1
        frame.retry = None
        said = event.text if event.output is None else event.output
        if said != "":
            self._say(frame, "text", frame.agent, said)
        for index, proposal in enumerate(event.calls):
            call = CallRecord(
                id=call_id(frame.turn, index),
                frame=frame.id,
                agent=frame.agent,
                tool=proposal.tool,
                args=proposal.args,
            )
            frame.calls[call.id] = call
            self._say(frame, "call", frame.agent, {"tool": call.tool, "args": call.args})

    def _close_call(self, frame: FrameRecord, event: e.FrameClosed) -> None:
        call = self._caller(frame)
        if call is None or call.state is CallState.CLOSED:
            return
        parent = self.frames[call.frame]
        if event.outcome == "answered":
            call.state, call.result = CallState.RETURNED, event.content
            self._say(parent, "result", call.tool, event.content)
        else:
            call.state, call.note = CallState.FAILED, event.content
            self._say(parent, "fault", call.tool, event.content)

    def _call_event(
        self, frame: FrameRecord, call: CallRecord, event: e.CallEvent | e.WaitEvent
    ) -> None:
        match event:
            case e.CallAdmitted():
                call.state, call.effect = CallState.ADMITTED, event.terms.effect
            case e.GateOpened():
                self._gated(call, event)
            case e.GateDecided():
                self._decided(frame, call, event)
            case e.GateClosed():
                call.state, call.note = CallState.CLOSED, event.reason
            case e.ToolStarted():
                call.state, call.note, call.until = CallState.STARTED, "", None
                call.attempt, call.started_at = event.attempt, event.at
            case e.ToolReturned():
                call.state, call.result = CallState.RETURNED, event.stored or event.result
                self._say(frame, "result", call.tool, call.result)
            case e.CallRefused():
                self._fault(frame, call, CallState.REFUSED, event.reason)
            case e.ToolFailed():
                self._fault(frame, call, CallState.FAILED, event.error)
            case e.OutcomeUnknown():
                call.lost = True
                self._fault(frame, call, CallState.UNKNOWN, event.error)
            case e.OutcomeArrived():
                self._arrived(frame, call, event)
            case e.RetryScheduled():
                call.state, call.note, call.until = CallState.RETRYING, event.error, event.until
                self._retried(frame, call.tool, event)
            case e.WaitStarted():
                call.state, call.until, call.note = CallState.WAITING, event.until, awaited(event)
            case e.WaitEnded():
                self._waited(frame, call, event)
            case _:
                assert_never(event)

    def _arrived(self, frame: FrameRecord, call: CallRecord, event: e.OutcomeArrived) -> None:
        if event.outcome == "returned":
            call.state, call.result, call.note = (
                CallState.RETURNED,
                event.stored or event.result,
                "",
            )
        else:
            call.state, call.note = CallState.FAILED, event.error
        call.late = True
        self._say(
            frame, "late", call.tool, call.result if event.outcome == "returned" else event.error
        )

    def _waited(self, frame: FrameRecord, call: CallRecord, event: e.WaitEnded) -> None:
        call.until = None
        match event.outcome:
            case "again":
                return
            case "arrived" | "timed_out":
                call.state, call.result, call.note = CallState.RETURNED, event.result, ""
                self._say(frame, "result", call.tool, event.result)
            case "refused":
                self._fault(frame, call, CallState.FAILED, str(event.result))
            case "closed":
                call.state = CallState.CLOSED
            case _:
                assert_never(event.outcome)

    def _halt(self, frame: FrameRecord, event: e.GateOpened | e.GateDecided | e.GateClosed) -> None:
        match event:
            case e.GateOpened():
                frame.halts += 1
                self._say(frame, "halt", frame.agent, event.reason)
            case e.GateDecided():
                frame.halts -= 1
                goes_on = event.verdict is Verdict.CONTINUE
                said = f"Continued {frame.agent}" if goes_on else f"Stopped {frame.agent}"
                self._say(frame, "decision", event.by, said + _because(event.reason))
            case e.GateClosed():
                frame.halts -= 1

    def _gated(self, call: CallRecord, event: e.GateOpened) -> None:
        if event.terms is not None:
            call.effect = event.terms.effect
        if event.kind is GateKind.IN_DOUBT:
            call.state = CallState.UNKNOWN
        else:  # for the first time, or again because the approved action changed
            call.state, call.note, call.decided_by = CallState.GATED, "", ""
            call.verdict = None

    def _decided(self, frame: FrameRecord, call: CallRecord, event: e.GateDecided) -> None:
        call.verdict, call.decided_by, call.note = event.verdict, event.by, event.reason
        call.state, said = after(event.verdict)
        why = _because(event.reason)
        self._say(frame, "decision", event.by or "the deadline", f"{said} {call.tool}{why}")
        if event.verdict is Verdict.HAPPENED:
            call.result = event.stored or event.result
            self._say(frame, "result", call.tool, call.result, reported_by=event.by)

    def _retried(self, frame: FrameRecord, what: str, event: e.RetryScheduled) -> None:
        self._say(frame, "retry", what, event.error, until=event.until)

    def _run_retried(self, event: e.Retried) -> None:
        """Reopen the calls that were closed with the run."""
        self.ending = None
        for frame in self.frames.values():
            if frame.parent is None:
                frame.outcome = None
            for call in frame.calls.values():
                if call.state is CallState.CLOSED:
                    call.state, call.note = _reopened(call), ""
        self._decide_on_run(event.by, f"Tried the failed run again{_because(event.reason)}")

    def _cancelling(self, event: e.Cancelling) -> None:
        self.ending = Ending(by=event.by, reason=redacted(event.reason), at=self.at)
        self._decide_on_run(event.by or "the engine", f"Ended the run: {event.reason}")

    def _decide_on_run(self, by: str, what: str) -> None:
        for frame in self.frames.values():
            if frame.parent is None:
                self._say(frame, "decision", by, what)

    def _fault(self, frame: FrameRecord, call: CallRecord, state: CallState, error: str) -> None:
        call.state, call.note = state, error
        self._say(frame, "fault", call.tool, error)

    def _say(
        self,
        frame: FrameRecord,
        kind: Kind,
        by: str,
        value: Any,
        *,
        turn: int | None = None,
        until: datetime | None = None,
        reported_by: str = "",
    ) -> None:
        self.said += 1
        frame.messages.append(
            Message(
                order=self.said,
                turn=frame.turn if turn is None else turn,
                agent=frame.agent,
                kind=kind,
                by=by,
                value=redacted(value),
                at=self.at,
                until=until,
                reported_by=reported_by,
            )
        )

    def _root_ended(self, outcome: str) -> None:
        """End the root frames, and close all calls that have not finished."""
        for frame in self.frames.values():
            frame.retry = None
            if frame.parent is None:
                frame.outcome = outcome
            for call in frame.calls.values():
                if call.state in _TO_COME:
                    call.state, call.until = CallState.CLOSED, None

    def _caller(self, frame: FrameRecord) -> CallRecord | None:
        """Return the call that `frame` works on; None for a root and for a frame with an impossible parent."""
        parent = self.frames.get(frame.parent or "")
        call = parent.calls.get(frame.call or "") if parent else None
        if call is None or frame.id != child_frame(call.frame, call.id):
            return None
        return call if depth_of(frame.id) <= MAX_DEPTH else None


def _reopened(call: CallRecord) -> CallState:
    if call.child is not None:
        return CallState.DELEGATED
    return CallState.UNKNOWN if call.lost else CallState.PROPOSED


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""

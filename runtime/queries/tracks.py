"""What a frame and a call leave in time while a journal is being folded into a timeline."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import assert_never
from uuid import UUID

from runtime.core import events as e
from runtime.core.decisions import HALTS, GateKind, Verdict
from runtime.queries.rows import RowKind, Tone
from runtime.queries.secrets import masked

_GATES = {
    GateKind.APPROVAL: "waits for a person to decide",
    GateKind.IN_DOUBT: "in doubt: waits for a person to say what became of it",
    GateKind.HOLD: "stopped: waits for a person to let it go on",
    GateKind.LIMIT: "at its limit: waits for a person to grant more",
    GateKind.VERSION: "changed meanwhile: waits for a person to let it go on",
}
_CLOSED = {
    GateKind.APPROVAL: "not started: the run was ended first",
    GateKind.IN_DOUBT: "in doubt for good: the run was ended first",
    **dict.fromkeys(HALTS, "the run was ended first"),
}
_VERDICTS: dict[Verdict, tuple[str, Tone]] = {
    Verdict.APPROVE: ("approved by", Tone.DONE),
    Verdict.DENY: ("denied by", Tone.BAD),
    Verdict.EXPIRE: ("nobody decided in time", Tone.BAD),
    Verdict.HAPPENED: ("reported as done by", Tone.DONE),
    Verdict.RUN_AGAIN: ("to run again, approved by", Tone.DONE),
    Verdict.GIVE_UP: ("given up by", Tone.BAD),
    Verdict.CONTINUE: ("let go on by", Tone.DONE),
    Verdict.STOP: ("stopped by", Tone.BAD),
}
_BRAKED = "held back, its provider wants fewer requests; its turn comes at"
_OUT_OF_BRAKE = "held back, its provider wanted fewer requests"
_STARTS_NOTHING = frozenset({Verdict.DENY, Verdict.EXPIRE, Verdict.HAPPENED, Verdict.GIVE_UP})


@dataclass(frozen=True, slots=True, kw_only=True)
class GateFacts:
    """What the journal does not say of a gate: when somebody decided, which a worker takes up later."""

    decided_at: datetime | None
    approval: UUID | None


@dataclass(slots=True, kw_only=True)
class Mark:
    """A row to be, still open while `end` is None."""

    kind: RowKind
    step: str
    name: str
    depth: int
    start: datetime | None
    words: str
    end: datetime | None = None
    tone: Tone = Tone.OPEN
    attempt: int = 0
    by: str = ""
    error: str = ""
    reason: str = ""
    gate: UUID | None = None
    gate_kind: GateKind | None = None
    verdict: Verdict | None = None
    position: int = 0
    approval: UUID | None = None
    until: datetime | None = None
    model: str = ""
    partial: str = ""

    def finish(
        self,
        at: datetime,
        words: str,
        tone: Tone,
        *,
        error: str = "",
        model: str = "",
        partial: str = "",
    ) -> None:
        if self.end is None:
            self.end, self.words, self.tone, self.until = at, words, tone, None
            self.error, self.model, self.partial = masked(error), model, masked(partial)

    def gate_opened(
        self, event: e.GateOpened, position: int, gates: Mapping[UUID, GateFacts]
    ) -> None:
        self.words, self.reason = _GATES[event.kind], masked(event.reason)
        self.gate, self.gate_kind, self.position = event.gate, event.kind, position
        facts = gates.get(event.gate)
        if facts is not None:
            self.approval = facts.approval
            if facts.decided_at is not None:  # replaced when the journal says what was decided
                self.end, self.words = facts.decided_at, "decided, taken up in a moment"

    def gate_decided(
        self, event: e.GateDecided, at: datetime, gates: Mapping[UUID, GateFacts]
    ) -> None:
        facts = gates.get(event.gate)
        self.end = (facts.decided_at if facts else None) or at
        self.words, self.tone = _VERDICTS[event.verdict]
        self.by, self.verdict, self.reason = event.by, event.verdict, masked(event.reason)

    def gate_closed(self, event: e.GateClosed, at: datetime) -> None:
        self.end = at
        self.words = _CLOSED[self.gate_kind or GateKind.APPROVAL]
        self.tone, self.reason = Tone.OVER, masked(event.reason)


def awaited(event: e.WaitStarted) -> str:
    """What a call waits for besides its time, in words; empty for nothing else."""
    if not event.event:
        return ""
    match = json.dumps(masked(event.match), ensure_ascii=False)
    return event.event if match == "{}" else f"{event.event} with {match}"


@dataclass(slots=True, kw_only=True)
class CallTrack:
    """One call: its gates, its attempts, and the waits between them, in order."""

    step: str
    tool: str
    depth: int
    marks: list[Mark] = field(default_factory=list)
    child: str | None = None
    settled: bool = False
    words: str = "proposed, not judged yet"

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
                self._last(RowKind.TOOL, at, "done", Tone.DONE)
            case e.CallRefused():
                self.settled = True
                self._add(RowKind.TOOL, at, "").finish(
                    at, "refused, it cannot be made", Tone.BAD, error=event.reason
                )
            case e.ToolFailed():
                self.settled = True
                self._last(RowKind.TOOL, at, "failed", Tone.BAD, error=event.error)
            case e.OutcomeUnknown():
                self._last(RowKind.TOOL, at, "its outcome was lost", Tone.BAD, error=event.error)
            case e.RetryScheduled():
                self._retries(event, at)
            case e.WaitStarted():
                self._waits(event, at)
            case e.WaitEnded():
                self._waited(event, at)
            case _:
                assert_never(event)

    def end(self, at: datetime, words: str) -> None:
        for mark in self.marks:
            mark.finish(at, words, Tone.OVER)
        self.words = "not started: the run was ended first"

    def shown(self) -> list[Mark]:
        """Its marks, or the one of a call to which nothing has happened that takes time."""
        if self.marks or self.child:
            return self.marks
        return [self._mark(RowKind.TOOL, None, self.words)]

    def _gated(
        self, event: e.GateOpened, at: datetime, position: int, gates: Mapping[UUID, GateFacts]
    ) -> None:
        self._add(RowKind.PERSON, at, "").gate_opened(event, position, gates)

    def _decided(self, event: e.GateDecided, at: datetime, gates: Mapping[UUID, GateFacts]) -> None:
        for mark in self.marks:
            if mark.gate == event.gate:
                mark.gate_decided(event, at, gates)
        self.settled = event.verdict in _STARTS_NOTHING

    def _closed(self, event: e.GateClosed, at: datetime) -> None:
        for mark in self.marks:
            if mark.gate == event.gate:
                mark.gate_closed(event, at)

    def _retries(self, event: e.RetryScheduled, at: datetime) -> None:
        words = "its worker was lost" if event.cause == "lost" else "failed, tried again"
        self._last(RowKind.TOOL, at, words, Tone.BAD, error=event.error)
        if event.until is not None and event.until > at:
            self._add(RowKind.WAIT, at, "tries again at").until = event.until

    def _waits(self, event: e.WaitStarted, at: datetime) -> None:
        mark = self._add(
            RowKind.AWAIT, at, "waits for an event until" if event.event else "waits until"
        )
        mark.until, mark.reason = event.until, awaited(event)

    def _waited(self, event: e.WaitEnded, at: datetime) -> None:
        match event.outcome:
            case "again":
                self._last(RowKind.WAIT, at, "waited before the next attempt", Tone.OVER)
            case "arrived":
                self.settled = True
                self._last(RowKind.AWAIT, at, "its event came", Tone.DONE)
            case "timed_out":
                self.settled = True
                self._last(RowKind.AWAIT, at, "its time came", Tone.OVER)
            case "refused":
                self.settled = True
                self._add(RowKind.AWAIT, at, "").finish(
                    at, "there is nothing to wait for", Tone.BAD, error=str(event.result)
                )
            case "closed":
                self._last(RowKind.AWAIT, at, "ended with the run", Tone.OVER)
            case _:
                assert_never(event.outcome)

    def _last(
        self, kind: RowKind, at: datetime, words: str, tone: Tone, *, error: str = ""
    ) -> None:
        for mark in reversed(self.marks):
            if mark.kind is kind:
                return mark.finish(at, words, tone, error=error)
        return None

    def _add(self, kind: RowKind, at: datetime, words: str, attempt: int = 0) -> Mark:
        mark = self._mark(kind, at, words)
        mark.attempt = attempt
        self.marks.append(mark)
        return mark

    def _mark(self, kind: RowKind, at: datetime | None, words: str) -> Mark:
        return Mark(
            kind=kind, step=self.step, name=self.tool, depth=self.depth, start=at, words=words
        )


@dataclass(slots=True, kw_only=True)
class FrameTrack:
    """One frame: its own mark, then model calls and calls in the order in which they came."""

    id: str
    parent: str | None
    agent: str
    depth: int
    turn: int = 0
    own: list[Mark] = field(default_factory=list)
    items: list[Mark | CallTrack] = field(default_factory=list)
    calls: dict[str, CallTrack] = field(default_factory=dict)
    of_turn: list[CallTrack] = field(default_factory=list)
    asked: int = 0  # attempts at the model call of the next turn
    unasked: bool = False  # halted before its model was asked
    answered: bool = False  # its model has said its last word, unless somebody writes to it

    def open(self, at: datetime, *, asks: bool = True) -> None:
        self.own.append(self._mark(RowKind.AGENT, self.id, at, "at work"))
        if asks:
            self.ask(at)

    def reopen(self) -> None:
        """It goes on after all: the run left one installation and came to another."""
        self.own[0].end, self.own[0].words, self.own[0].tone = None, "at work", Tone.OPEN

    def ask(self, at: datetime) -> None:
        self.answered = False
        self.asked += 1
        mark = self._mark(RowKind.MODEL, f"{self.id}/m{self.turn + 1}", at, "asked, no reply yet")
        mark.attempt = self.asked
        self.items.append(mark)

    def replied(self, at: datetime, model: str, calls: Mapping[str, str]) -> None:
        count = len(calls)
        asked = f"asked for {count} call{'s' if count > 1 else ''}" if count else "answered"
        self._last_model(at, asked, Tone.DONE, model=model)
        self.turn += 1
        self.asked, self.answered = 0, not calls
        self.of_turn = []
        for call, tool in calls.items():
            track = CallTrack(step=f"{self.id}/{call}", tool=tool, depth=self.depth + 1)
            self.calls[call] = track
            self.items.append(track)
            self.of_turn.append(track)

    def compacted(self, at: datetime, model: str) -> None:
        self._last_model(at, "summed earlier messages up", Tone.DONE, model=model)
        self.asked = 0
        self.ask(at)

    def changed(self, at: datetime) -> None:
        mark = self._mark(RowKind.AGENT, self.id, at, "")
        mark.finish(at, "goes on under another version", Tone.OVER)
        self.items.append(mark)

    def model_failed(self, at: datetime, event: e.ModelFailed) -> None:
        self._last_model(
            at, "failed", Tone.BAD, error=event.error, model=event.model, partial=event.partial
        )

    def halt(
        self,
        event: e.GateOpened | e.GateDecided | e.GateClosed,
        at: datetime,
        position: int,
        gates: Mapping[UUID, GateFacts],
    ) -> None:
        """A gate of the frame itself. Its model is asked once somebody lets it go on, and not before."""
        if isinstance(event, e.GateOpened):
            mark = self._mark(RowKind.PERSON, self.id, at, "")
            mark.gate_opened(event, position, gates)
            self._unask(at)
            self.items.append(mark)
            return
        for item in self.items:
            if isinstance(item, Mark) and item.gate == event.gate:
                if isinstance(event, e.GateClosed):
                    item.gate_closed(event, at)
                else:
                    item.gate_decided(event, at, gates)
                    self._ask_again(event, at)

    def _unask(self, at: datetime) -> None:
        """The model was to be asked in the very entry that halts the frame, so it was not."""
        last = self.items[-1] if self.items else None
        if isinstance(last, Mark) and last.kind is RowKind.MODEL and last.start == at:
            self.items.pop()
            self.asked, self.unasked = 0, True

    def _ask_again(self, event: e.GateDecided, at: datetime) -> None:
        if self.unasked and event.verdict is Verdict.CONTINUE:
            self.unasked = False
            self.ask(at)

    def model_retries(self, at: datetime, event: e.RetryScheduled) -> None:
        if event.cause == "brake":
            self._held_back(at, event)
            return
        words = "its worker was lost" if event.cause == "lost" else "brought no reply"
        if event.instead:
            words = "brought no reply, the next model is asked"
        self._last_model(
            at, words, Tone.BAD, error=event.error, model=event.model, partial=event.partial
        )
        if event.until is not None and event.until > at:
            self._waits(at, "tries again at", event.until)

    def _held_back(self, at: datetime, event: e.RetryScheduled) -> None:
        """Nothing was asked after all: the attempt is taken back, and one wait stands for all of them."""
        self.asked -= 1
        last = self.items[-1] if self.items else None
        if isinstance(last, Mark) and last.kind is RowKind.MODEL:
            self.items.pop()
        until = event.until or at
        before = self.items[-1] if self.items else None
        if isinstance(before, Mark) and before.words == _OUT_OF_BRAKE:
            before.end, before.words, before.tone = None, _BRAKED, Tone.OPEN
            before.until = until
            return
        self._waits(at, _BRAKED, until)

    def _waits(self, at: datetime, words: str, until: datetime) -> None:
        mark = self._mark(RowKind.WAIT, f"{self.id}/m{self.turn + 1}", at, words)
        mark.until = until
        self.items.append(mark)

    def model_asked_again(self, at: datetime) -> None:
        waits = [
            mark for mark in self.items if isinstance(mark, Mark) and mark.kind is RowKind.WAIT
        ]
        braked = bool(waits) and waits[-1].words == _BRAKED
        words = _OUT_OF_BRAKE if braked else "waited before the next attempt"
        self._last(RowKind.WAIT, at, words, Tone.OVER)
        self.ask(at)

    def waits_for_model(self) -> bool:
        """Whether every call of the turn is settled and the model was not asked since."""
        settled = bool(self.of_turn) and all(call.settled for call in self.of_turn)
        return settled and not self.asked and not self.unasked

    def close(self, at: datetime, outcome: str) -> None:
        self.own[0].finish(at, outcome, Tone.DONE if outcome == "answered" else Tone.BAD)

    def end(self, at: datetime, words: str, tone: Tone) -> None:
        self.own[0].finish(at, words, tone)
        for item in self.items:
            if isinstance(item, CallTrack):
                item.end(at, "ended with the run")
            else:
                item.finish(at, "ended with the run", Tone.OVER)

    def marks(self, frames: Mapping[str, "FrameTrack"], seen: set[str]) -> list[Mark]:
        """Everything in the order of the tree. A damaged journal may go in circles; this does not."""
        if self.id in seen:
            return []
        seen.add(self.id)
        marks = list(self.own)
        for item in self.items:
            if isinstance(item, Mark):
                marks.append(item)
                continue
            marks += item.shown()
            child = frames.get(item.child or "")
            if child is not None:
                marks += child.marks(frames, seen)
        return marks

    def _last_model(
        self,
        at: datetime,
        words: str,
        tone: Tone,
        *,
        model: str,
        error: str = "",
        partial: str = "",
    ) -> None:
        for item in reversed(self.items):
            if isinstance(item, Mark) and item.kind is RowKind.MODEL:
                return item.finish(at, words, tone, error=error, model=model, partial=partial)
        return None

    def _last(self, kind: RowKind, at: datetime, words: str, tone: Tone) -> None:
        for item in reversed(self.items):
            if isinstance(item, Mark) and item.kind is kind:
                return item.finish(at, words, tone)
        return None

    def _mark(self, kind: RowKind, step: str, at: datetime, words: str) -> Mark:
        depth = self.depth if kind is RowKind.AGENT else self.depth + 1
        return Mark(kind=kind, step=step, name=self.agent, depth=depth, start=at, words=words)

"""Builds a row of a timeline while the journal is folded."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from runtime.core import events as e
from runtime.core.enums import FRAME_GATES, GateKind, Verdict
from runtime.queries.redaction import redacted
from runtime.queries.timeline.rows import RowKind, RowResult

_GATES = {
    GateKind.APPROVAL: "waits for a person to decide",
    GateKind.IN_DOUBT: "in doubt: waits for a person to resolve it",
    GateKind.HOLD: "stopped: waits for a person to continue it",
    GateKind.LIMIT: "at its limit: waits for a person to grant more",
    GateKind.VERSION: "changed: waits for a person to continue it",
}
_CLOSED = {
    GateKind.APPROVAL: "not started: the run was ended first",
    GateKind.IN_DOUBT: "in doubt: the run was ended first",
    **dict.fromkeys(FRAME_GATES, "the run was ended first"),
}
_VERDICTS: dict[Verdict, tuple[str, RowResult]] = {
    Verdict.APPROVE: ("approved by", RowResult.DONE),
    Verdict.DENY: ("denied by", RowResult.BAD),
    Verdict.EXPIRE: ("expired without a decision", RowResult.BAD),
    Verdict.HAPPENED: ("reported as done by", RowResult.DONE),
    Verdict.RUN_AGAIN: ("to run again, approved by", RowResult.DONE),
    Verdict.GIVE_UP: ("given up by", RowResult.BAD),
    Verdict.CONTINUE: ("continued by", RowResult.DONE),
    Verdict.STOP: ("stopped by", RowResult.BAD),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GateFacts:
    """Facts about a gate that are not in the journal: its request, and the time of a decision not yet applied."""

    decided_at: datetime | None
    approval: UUID | None


@dataclass(slots=True, kw_only=True)
class SpanBuilder:
    """A row being built; open while `end` is None."""

    kind: RowKind
    step: str
    name: str
    depth: int
    start: datetime | None
    words: str
    end: datetime | None = None
    tone: RowResult = RowResult.OPEN
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
    said: str = ""

    def finish(
        self,
        at: datetime,
        words: str,
        tone: RowResult,
        *,
        error: str = "",
        model: str = "",
        partial: str = "",
        said: str = "",
    ) -> None:
        if self.end is None:
            self.end, self.words, self.tone, self.until = at, words, tone, None
            self.error, self.model, self.partial = redacted(error), model, redacted(partial)
            self.said = redacted(said)

    def gate_opened(
        self, event: e.GateOpened, position: int, gates: Mapping[UUID, GateFacts]
    ) -> None:
        self.words, self.reason = _GATES[event.kind], redacted(event.reason)
        self.gate, self.gate_kind, self.position = event.gate, event.kind, position
        facts = gates.get(event.gate)
        if facts is not None:
            self.approval = facts.approval
            if facts.decided_at is not None:  # replaced by the entry of the decision
                self.end, self.words = facts.decided_at, "decided, the worker applies it shortly"

    def gate_decided(
        self, event: e.GateDecided, at: datetime, gates: Mapping[UUID, GateFacts]
    ) -> None:
        facts = gates.get(event.gate)
        self.end = (facts.decided_at if facts else None) or at
        self.words, self.tone = _VERDICTS[event.verdict]
        self.by, self.verdict, self.reason = event.by, event.verdict, redacted(event.reason)

    def gate_closed(self, event: e.GateClosed, at: datetime) -> None:
        self.end = at
        self.words = _CLOSED[self.gate_kind or GateKind.APPROVAL]
        self.tone, self.reason = RowResult.OVER, redacted(event.reason)

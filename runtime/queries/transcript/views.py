"""The transcript of a run, as data: a tree of frames, each with its calls and messages."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from runtime.core.continuation import SETTLED, CallState
from runtime.core.effect_classes import RULES
from runtime.core.enums import EffectClass, Verdict

Kind = Literal[
    "input",
    "text",
    "call",
    "decision",
    "result",
    "fault",
    "late",
    "retry",
    "release",
    "halt",
    "summary",
    "instructions",
    "message",
]

_TITLES: dict[Kind, str] = {
    "input": "given by",
    "text": "written by",
    "call": "requested by",
    "decision": "decided by",
    "result": "result of",
    "fault": "error of",
    "late": "late outcome of",
    "retry": "no result from",
    "summary": "earlier messages summarised by",
    "instructions": "instructions made from the input of",
    "release": "another version of",
    "halt": "stopped:",
    "message": "message from",
}

_WORDS = {
    CallState.PROPOSED: "proposed, not checked yet",
    CallState.ADMITTED: "about to start",
    CallState.GATED: "waiting for a person",
    CallState.REFUSED: "refused, it cannot be made",
    CallState.DENIED: "denied, never started",
    CallState.STARTED: "started",
    CallState.RETRYING: "will be tried again",
    CallState.WAITING: "waits",
    CallState.DELEGATED: "waiting for a sub-agent",
    CallState.RETURNED: "done",
    CallState.FAILED: "failed",
    CallState.UNKNOWN: "in doubt: started, outcome unknown",
    CallState.CLOSED: "not started: the run was ended first",
}

_DECIDED: dict[Verdict, str] = {
    Verdict.APPROVE: "approved by",
    Verdict.DENY: "denied by",
    Verdict.EXPIRE: "expired without a decision",
    Verdict.HAPPENED: "reported by",
    Verdict.RUN_AGAIN: "to run again, approved by",
    Verdict.GIVE_UP: "given up by",
    Verdict.CONTINUE: "continued by",
    Verdict.STOP: "stopped by",
}

# Final states, and states in which the call may have had its effect.
_OVER = SETTLED | {CallState.CLOSED}
_MAY_HAVE_HAPPENED = frozenset({CallState.STARTED, CallState.RETURNED, CallState.UNKNOWN})


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message in a frame. `by` is a person, an agent or a tool; `value` is JSON, plain text, or a `Stored` result.

    `order` counts the messages of the run; `turn` is the frame's, 0 before its model replied; `agent` owns the frame.
    `until` is the time of the next attempt; `reported_by` is the person who reported a result.
    """

    order: int
    turn: int
    agent: str
    kind: Kind
    by: str
    value: Any
    at: datetime
    until: datetime | None = None
    reported_by: str = ""

    @property
    def title(self) -> str:
        """The heading; `by` follows."""
        return _TITLES[self.kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallView:
    """One call. `note` is the reason or error of its state; `child` works on it.

    `verdict` is its last decision, `decided_by` the reviewer, empty for an expiry. `attempt` and `started_at` belong to
    its last start, `until` is the time of the next attempt. `lost` says that its outcome is unknown, or was before a
    person resolved it; `late` that a late outcome settled it.
    """

    id: str
    frame: str
    agent: str
    tool: str
    args: Any
    state: CallState
    note: str
    effect: EffectClass | None
    verdict: Verdict | None
    decided_by: str
    attempt: int
    started_at: datetime | None
    until: datetime | None
    lost: bool
    late: bool
    result: Any
    child: "FrameView | None"

    @property
    def words(self) -> str:
        match self.state, self.verdict:
            case CallState.ADMITTED, Verdict.APPROVE | Verdict.RUN_AGAIN:
                return "approved, about to start"
            case CallState.DENIED, Verdict.EXPIRE:
                return "expired, never started"
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
                return _WORDS[self.state]

    @property
    def moment(self) -> datetime | None:
        """The time that follows `words`, for a call that waits."""
        return self.until if self.state in (CallState.RETRYING, CallState.WAITING) else None

    @property
    def decision(self) -> str:
        """The label of the last decision; the name of the reviewer follows, if there is one."""
        return "" if self.verdict is None else _DECIDED[self.verdict]

    @property
    def is_settled(self) -> bool:
        return self.state in _OVER

    @property
    def has_side_effects(self) -> bool:
        """Tell whether the call changed the outside world, or may have. Cancelling the run does not undo that."""
        if self.child is not None or (self.effect and not RULES[self.effect].has_side_effects):
            return False
        lost = self.state in (CallState.CLOSED, CallState.RETRYING) and self.attempt > 0
        return lost or self.state in _MAY_HAVE_HAPPENED


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


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameView:
    """One activation of one agent. `plan` is None if the agent has not declared its steps.

    `halts` counts its own gates that wait for a person.
    """

    id: str
    agent: str
    fingerprint: str
    depth: int
    plan: tuple[str, ...] | None
    outcome: str | None
    retry: Retry | None
    calls: tuple[CallView, ...]
    messages: tuple[Message, ...]
    halts: int = 0

    @property
    def children(self) -> tuple["FrameView", ...]:
        return tuple(call.child for call in self.calls if call.child)

    @property
    def words(self) -> str:
        """The status: the outcome, or the state of the last open call; `until` follows."""
        if self.outcome is not None:
            return self.outcome
        if self.halts:
            return "stopped until a person continues it"
        if self.retry is not None:
            return "its model is called again"
        return self._waits_for.words if self._waits_for else "at work"

    @property
    def until(self) -> datetime | None:
        """The time that follows `words`, if any."""
        waits = self.outcome is None and not self.halts and self.retry is None and self._waits_for
        return waits.moment if waits else None

    @property
    def _waits_for(self) -> CallView | None:
        still = [call for call in self.calls if not call.is_settled]
        return still[-1] if still else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The cancellation of a run; `by` is empty for the engine itself."""

    by: str
    reason: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The origin of a run: entry `position` of run `of`, or another installation if `of` is None."""

    by: str
    of: UUID | None = None
    position: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """The pause of a run; `reason` may be empty."""

    by: str
    reason: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """`roots` is the root frame, and any frame whose parent could not be read."""

    roots: tuple[FrameView, ...]
    unreadable: tuple[int, ...]
    ending: Ending | None = None
    origin: Origin | None = None
    pause: Pause | None = None

    def frames(self) -> Iterator[FrameView]:
        """Yield the frames, a parent before its children."""
        stack = list(reversed(self.roots))
        while stack:
            frame = stack.pop()
            yield frame
            stack.extend(call.child for call in reversed(frame.calls) if call.child)

    def calls(self) -> Iterator[CallView]:
        """Yield the calls that are not delegations; the calls of a sub-agent replace its delegation."""
        for root in self.roots:
            yield from _leaves(root)

    def said(self) -> list[Message]:
        """Return all messages of the run in order."""
        return sorted((m for f in self.frames() for m in f.messages), key=lambda m: m.order)

    def frame(self, frame: str) -> FrameView | None:
        """Return a frame; None if the journal does not mention it."""
        return next((found for found in self.frames() if found.id == frame), None)

    @property
    def waiting(self) -> tuple[CallView, ...]:
        """The calls that wait for a time or an event."""
        calls = (call for frame in self.frames() for call in frame.calls)
        return tuple(call for call in calls if call.state is CallState.WAITING)

    @property
    def outage(self) -> Retry | None:
        """The retry of a model whose provider does not answer; None for no outage."""
        retries = (frame.retry for frame in self.frames() if frame.retry)
        return next((retry for retry in retries if retry.since is not None), None)

    @property
    def next_try(self) -> datetime | None:
        """The time of the next attempt of any call or model call; None if there is none."""
        calls = [call for frame in self.frames() for call in frame.calls]
        waits = [call.until for call in calls if call.state is CallState.RETRYING]
        waits += [frame.retry.until for frame in self.frames() if frame.retry]
        return min((until for until in waits if until is not None), default=None)

    def call(self, frame: str, call: str) -> CallView | None:
        """Return a call; None if the journal does not mention it."""
        found = (c for f in self.frames() if f.id == frame for c in f.calls if c.id == call)
        return next(found, None)


def _leaves(frame: FrameView) -> Iterator[CallView]:
    for call in frame.calls:
        if call.child is None:
            yield call
        else:
            yield from _leaves(call.child)

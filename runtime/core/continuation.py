"""Everything a run needs to go on, as plain immutable data: frames, their calls, and the gates it waits at.

Run, frame and call have no slots, so that `replacing.replace` can change them for each event. What is long is
concatenated with `+`, which copies it once, and not at all where there is nothing to add; to unpack it into a
new tuple copies it twice.
"""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, assert_never
from uuid import UUID

from runtime.core.budgets import NOTHING, Budget, BudgetGate, Rates, Spent
from runtime.core.call_options import (
    MODEL_OPTIONS,
    CallOptions,
    CompactionOptions,
    ModelOptions,
)
from runtime.core.enums import GateKind
from runtime.core.errors import UnknownSubject
from runtime.core.events import BlobRef
from runtime.core.fast_replace import replace
from runtime.core.ids import ROOT, turn_mark

MAX_DEPTH = 16
MAX_REFUSALS = 5


class Phase(StrEnum):
    """How far the run as a whole is."""

    NEW = "new"  # nothing has happened
    STARTED = "started"  # agents are at work, or wait
    COMPLETED = "completed"  # the root agent answered
    FAILED = "failed"  # the root agent could not answer
    CANCELLING = "cancelling"  # nothing new starts; what is under way is waited for
    CANCELLED = "cancelled"  # somebody ended it
    EXPORTED = "exported"  # it goes on in another installation, if anywhere


class Pace(StrEnum):
    """Whether a run may start anything new."""

    RUNNING = "running"
    PAUSED = "paused"  # not until somebody resumes it


class RunStatus(StrEnum):
    """What people are told of a run; derived from its state, and the row holds a copy."""

    QUEUED = "queued"  # started, and not yet claimed by a worker
    RUNNING = "running"  # a worker holds its lease, or held it when it died
    WAITING = "waiting"  # waits for a time or an external event; holds no worker
    SUSPENDED = "suspended"  # waits at a gate; holds no worker
    PAUSED = "paused"  # a person paused it: nothing new starts until it is resumed
    CANCELLING = "cancelling"  # being cancelled: running calls may finish
    COMPLETED = "completed"  # ended: its root agent answered
    FAILED = "failed"  # ended: its root agent could not answer
    CANCELLED = "cancelled"  # ended: a person cancelled it
    EXPORTED = "exported"  # ended here: it moved to another installation
    QUARANTINED = "quarantined"  # stored data does not verify, or its workers died


class FrameState(StrEnum):
    """What a frame waits for."""

    ASKING = "asking"  # waits for its model
    RETRYING = "retrying"  # waits for the next attempt at its model call
    ACTING = "acting"  # waits for the calls of its turn
    ANSWERED = "answered"  # to be closed with its answer
    FAILED = "failed"  # to be closed with its error
    CLOSED = "closed"  # finished; it leaves the continuation


class CallState(StrEnum):
    """Where a call stands between its proposal and its result."""

    PROPOSED = "proposed"  # the model proposed it; not yet checked
    ADMITTED = "admitted"  # it may start
    GATED = "gated"  # a person must approve it first
    REFUSED = "refused"  # it cannot be made: unknown tool, or invalid arguments
    DENIED = "denied"  # a person denied it, or its approval expired
    STARTED = "started"  # an attempt is under way, or was when its worker died
    RETRYING = "retrying"  # an attempt ended without a result; another one follows
    WAITING = "waiting"  # it only waits for a time or an external event
    DELEGATED = "delegated"  # a child frame works on it
    RETURNED = "returned"  # it has a result
    FAILED = "failed"  # it has an error
    UNKNOWN = "unknown"  # in doubt: its outcome was lost
    CLOSED = "closed"  # the run ended, or its gate was closed, before it had a result


SETTLED = frozenset({CallState.REFUSED, CallState.DENIED, CallState.RETURNED, CallState.FAILED})


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call. `gate` is the last gate opened for it; `result` is what the model hears once settled.

    `failures` counts attempts that ended in an error, not those whose worker died. `reported_by` names
    the person whose word the result is. `stored` is in the place of a result that is stored by its hash.
    `verdict` is kept if the model must be told more than the state says: an expiry or a call given up.
    """

    id: str
    tool: str
    args: Any
    state: CallState = CallState.PROPOSED
    terms: CallOptions | None = None
    gate: UUID | None = None
    frame: str | None = None
    attempt: int = 0
    failures: int = 0
    started_at: datetime | None = None
    until: datetime | None = None
    result: Any = None
    stored: BlobRef | None = None
    reported_by: str | None = None
    verdict: Literal["expire", "give_up"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """What a frame knows of models that bring no reply: since when, and the last `error`.

    `rounds` counts how often all models of the agent were asked in vain; from the first on, people are asked at
    `asks_at`.
    """

    since: datetime
    error: str
    rounds: int = 0
    asks_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Frame:
    """One activation of one agent. `parent` and `call` say whose call it works on; the root has neither.

    `attempt` counts the attempts at the model call of this turn, `failures` those that failed at `model`,
    which is the one to ask: empty for the first of the agent's. `ticket` is the number with which it waits
    for a braked provider, 0 for none. `outage` is there while its model brings no reply.
    `cleared` is the turn at which somebody last let it go on from a hold that opened at `cleared_at`.
    `spent` is what it and everything below it used, `context` the tokens of its last model call, and
    `since` how long the run had been at work when it opened, in seconds. `instructions` is the text that a function
    made of its input, empty if the agent's instructions are a text.
    """

    id: str
    agent: str
    fingerprint: str
    prompt: str
    parent: str | None = None
    call: str | None = None
    plan: tuple[str, ...] | None = None
    state: FrameState = FrameState.ASKING
    turn: int = 0
    attempt: int = 1
    failures: int = 0
    model: str = ""
    ticket: int = 0
    outage: Outage | None = None
    terms: ModelOptions = MODEL_OPTIONS
    compaction: CompactionOptions | None = None
    until: datetime | None = None
    messages: tuple[dict[str, Any], ...] = ()
    calls: tuple[Call, ...] = ()
    outcome: Any = None
    opened_at: datetime | None = None
    cleared: int = -1
    cleared_at: datetime | None = None
    budget: Budget | None = None
    rates: Rates | None = None
    spent: Spent = NOTHING
    context: int = 0
    since: float = 0.0
    instructions: str = ""

    def of_turn(self) -> tuple[Call, ...]:
        """The calls of the current turn, in the order the model proposed them."""
        begin, mark = len(self.calls), turn_mark(self.turn)
        while begin and self.calls[begin - 1].id.startswith(mark):
            begin -= 1
        return self.calls[begin:]

    def open_calls(self) -> tuple[Call, ...]:
        """The calls of the turn, as long as one of them has no result; none after that."""
        return self.of_turn() if self.state is FrameState.ACTING else ()

    def find(self, call: str) -> Call:
        return self.calls[self._place(call)]

    def with_call(self, call: Call) -> "Frame":
        """With this call in the place of the one of its id."""
        place, calls = self._place(call.id), (call,)
        return replace(self, calls=self.calls[:place] + calls + self.calls[place + 1 :])

    def _place(self, call: str) -> int:
        """From the end, where the calls of the current turn are: a long run must not look at all of them."""
        for place in range(len(self.calls) - 1, -1, -1):
            if self.calls[place].id == call:
                return place
        raise UnknownSubject("call", f"{self.id}/{call}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """One gate that nobody has decided. `path` goes from the root agent to the tool.

    At a halt `call` is empty and `path` ends at the frame's agent. `version` is the fingerprint under which
    the frame is to go on from a version gate.
    """

    gate: UUID
    kind: GateKind
    frame: str
    call: str
    path: tuple[str, ...]
    expires_at: datetime | None = None
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """What waits for its time, and that time. `call` is None for the frame's model call."""

    frame: str
    call: str | None
    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Who holds the run up, and why if they said so."""

    by: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Undelivered:
    """A message of a person that the root's model has not heard yet."""

    by: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Continuation:
    """A run at `position`: the fold of its journal up to the entry whose MAC is `head`.

    `short` is what the last limit gate is about. `worked` are seconds at work up to `ticking`, which is
    None while the clock stands still; both are kept only where a limit is set. `origin` names the people who steered
    it (see runtime.core.machine.origin). `left` holds the frames of a failed run, which may be tried again.
    """

    run: UUID
    schema: int = 5
    position: int = 0
    head: str = ""
    phase: Phase = Phase.NEW
    agent: str = ""
    input: Any = None
    requester: str = ""
    agents: dict[str, str] = field(default_factory=dict)
    frames: dict[str, Frame] = field(default_factory=dict)
    left: dict[str, Frame] = field(default_factory=dict)
    pending: tuple[Pending, ...] = ()
    usage: dict[str, int] = field(default_factory=dict)
    refusals: int = 0
    cancelled_by: str = ""
    outcome: Any = None
    paused: Pause | None = None
    budget: Budget | None = None
    spent: Spent = NOTHING
    short: BudgetGate | None = None
    worked: float = 0.0
    ticking: datetime | None = None
    unheard: tuple[Undelivered, ...] = ()
    origin: tuple[str, ...] = ()
    business_key: str | None = None

    def frame(self, frame: str) -> Frame:
        try:
            return self.frames[frame]
        except KeyError:
            raise UnknownSubject("frame", frame) from None

    def call(self, frame: str, call: str) -> Call:
        return self.frame(frame).find(call)

    def with_frame(self, frame: Frame) -> "Continuation":
        return replace(self, frames={**self.frames, frame.id: frame})

    def path(self, frame: str, tool: str = "") -> tuple[str, ...]:
        """The agents from the root down to `frame`, then the tool if one is named."""
        names = [tool] if tool else []
        at: str | None = frame
        while at is not None:
            here = self.frame(at)
            names.append(here.agent)
            at = here.parent
        return tuple(reversed(names))

    @property
    def root(self) -> Frame | None:
        return self.frames.get(ROOT)

    @property
    def ended(self) -> bool:
        return self.phase in (Phase.COMPLETED, Phase.FAILED, Phase.CANCELLED, Phase.EXPORTED)

    @property
    def pace(self) -> Pace:
        return Pace.RUNNING if self.paused is None else Pace.PAUSED

    @property
    def is_paused(self) -> bool:
        """Whether nothing new may start until somebody resumes it. Its end may come all the same."""
        return self.paused is not None and self.phase is Phase.STARTED

    def waits(self) -> tuple[Wait, ...]:
        """Everything that waits for its time; in a paused run no time matters until it is resumed."""
        if self.is_paused:
            return ()
        retries, waiting = self._waits()
        return (*retries, *waiting)

    def retries(self) -> tuple[Wait, ...]:
        """What waits to be tried again."""
        return () if self.is_paused else tuple(self._waits()[0])

    @property
    def outage_error(self) -> str | None:
        """Why the run waits for a provider of models: its last answer. None if no frame does."""
        for frame in self.frames.values():
            if frame.outage is not None and frame.state is FrameState.RETRYING:
                return frame.outage.error
        return None

    def waiting(self) -> tuple[Wait, ...]:
        """The calls that do nothing but wait."""
        return () if self.is_paused else self.all_waiting()

    def all_waiting(self) -> tuple[Wait, ...]:
        """As `waiting`, also of a paused run."""
        return tuple(self._waits()[1])

    def _waits(self) -> tuple[list[Wait], list[Wait]]:
        """What waits to be tried again, and the calls that do nothing but wait."""
        retries: list[Wait] = []
        waiting: list[Wait] = []
        for frame in self.frames.values():
            if frame.until is not None:
                retries.append(Wait(frame=frame.id, call=None, until=frame.until))
            for call in frame.open_calls():
                if call.until is not None:
                    wait = Wait(frame=frame.id, call=call.id, until=call.until)
                    (waiting if call.state is CallState.WAITING else retries).append(wait)
        return retries, waiting


def in_doubt(now: Continuation) -> tuple[tuple[str, Call], ...]:
    """List the calls whose outcome is unknown, each with its frame."""
    return tuple(
        (frame.id, call)
        for frame in now.frames.values()
        for call in frame.open_calls()
        if call.state is CallState.UNKNOWN
    )


def status_of(now: Continuation, *, held: bool) -> RunStatus:
    """The status of a verified run; `held` says whether a worker has its lease."""
    match now.phase:
        case Phase.COMPLETED:
            return RunStatus.COMPLETED
        case Phase.FAILED:
            return RunStatus.FAILED
        case Phase.CANCELLED:
            return RunStatus.CANCELLED
        case Phase.EXPORTED:
            return RunStatus.EXPORTED
        case Phase.CANCELLING:
            return RunStatus.CANCELLING
        case Phase.NEW | Phase.STARTED if now.is_paused:
            return RunStatus.PAUSED
        case Phase.NEW | Phase.STARTED if held:
            return RunStatus.RUNNING
        case Phase.NEW | Phase.STARTED if now.pending:
            return RunStatus.SUSPENDED
        case Phase.NEW | Phase.STARTED:
            return RunStatus.WAITING if now.waits() else RunStatus.QUEUED
        case _ as never:
            assert_never(never)

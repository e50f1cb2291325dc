"""Everything a run needs to go on, as plain immutable data: frames, their calls, and the gates it waits at."""

from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, assert_never
from uuid import UUID

from runtime.core.decisions import GateKind
from runtime.core.errors import UnknownSubject
from runtime.core.events import Terms
from runtime.core.ids import ROOT, turn_of

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


class RunStatus(StrEnum):
    """What people are told of a run; derived from its state, and the row holds a copy."""

    QUEUED = "queued"  # started, no worker has had it yet
    RUNNING = "running"  # a worker holds its lease, or held it when it died
    WAITING = "waiting"  # waits for a time only, and holds nothing
    SUSPENDED = "suspended"  # waits at a gate and holds nothing
    CANCELLING = "cancelling"  # somebody ended it, and what is under way is waited for
    COMPLETED = "completed"  # its root agent answered
    FAILED = "failed"  # its root agent could not answer
    CANCELLED = "cancelled"  # somebody ended it
    QUARANTINED = "quarantined"  # set on the row alone: its journal cannot be verified


class FrameState(StrEnum):
    """What a frame waits for."""

    ASKING = "asking"  # its model
    RETRYING = "retrying"  # the time of the next attempt at its model call
    ACTING = "acting"  # the calls of its turn
    ANSWERED = "answered"  # to be closed with its answer
    FAILED = "failed"  # to be closed with its error
    CLOSED = "closed"  # nothing; it leaves the continuation


class CallState(StrEnum):
    """Where a call stands between its proposal and its result."""

    PROPOSED = "proposed"  # the model asked for it; nobody has judged it
    ADMITTED = "admitted"  # it may start
    GATED = "gated"  # a person must decide first
    REFUSED = "refused"  # it cannot be made
    DENIED = "denied"  # a person said no
    STARTED = "started"  # an attempt is under way, or was when its worker died
    RETRYING = "retrying"  # an attempt is over without an outcome; another will follow
    DELEGATED = "delegated"  # a child frame works on it
    RETURNED = "returned"  # it has a result
    FAILED = "failed"  # it has an error
    UNKNOWN = "unknown"  # nobody knows whether it happened
    CLOSED = "closed"  # its gate was closed and it is over without a result


SETTLED = frozenset({CallState.REFUSED, CallState.DENIED, CallState.RETURNED, CallState.FAILED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call. `gate` is the last gate opened for it; `result` is what the model hears once settled.

    `failures` counts attempts that ended in an error, not those whose worker died. `reported_by` names
    the person whose word the result is.
    """

    id: str
    tool: str
    args: Any
    state: CallState = CallState.PROPOSED
    terms: Terms | None = None
    gate: UUID | None = None
    frame: str | None = None
    attempt: int = 0
    failures: int = 0
    started_at: datetime | None = None
    until: datetime | None = None
    result: Any = None
    reported_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One activation of one agent. `parent` and `call` say whose call it works on; the root has neither."""

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
    until: datetime | None = None
    messages: tuple[dict[str, Any], ...] = ()
    calls: tuple[Call, ...] = ()
    outcome: str | None = None

    def of_turn(self) -> tuple[Call, ...]:
        """The calls of the current turn, in the order the model proposed them."""
        return tuple(call for call in self.calls if turn_of(call.id) == self.turn)

    def find(self, call: str) -> Call:
        for candidate in self.calls:
            if candidate.id == call:
                return candidate
        raise UnknownSubject("call", f"{self.id}/{call}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """One gate that nobody has decided. `path` goes from the root agent to the tool."""

    gate: UUID
    kind: GateKind
    frame: str
    call: str
    path: tuple[str, ...]
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """A retry and its time; `call` is None for the frame's model call."""

    frame: str
    call: str | None
    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """A run at `position`: the fold of its journal up to the entry whose MAC is `head`."""

    run: UUID
    schema: int = 1
    position: int = 0
    head: str = ""
    phase: Phase = Phase.NEW
    agent: str = ""
    input: Any = None
    requester: str = ""
    agents: dict[str, str] = field(default_factory=dict)
    frames: dict[str, Frame] = field(default_factory=dict)
    pending: tuple[Pending, ...] = ()
    usage: dict[str, int] = field(default_factory=dict)
    refusals: int = 0
    cancelled_by: str = ""
    outcome: str | None = None

    def frame(self, frame: str) -> Frame:
        try:
            return self.frames[frame]
        except KeyError:
            raise UnknownSubject("frame", frame) from None

    def call(self, frame: str, call: str) -> Call:
        return self.frame(frame).find(call)

    def with_frame(self, frame: Frame) -> "Continuation":
        return replace(self, frames={**self.frames, frame.id: frame})

    def path(self, frame: str, tool: str) -> tuple[str, ...]:
        """The agents from the root down to `frame`, then the tool."""
        names = [tool]
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
        return self.phase in (Phase.COMPLETED, Phase.FAILED, Phase.CANCELLED)

    def waits(self) -> tuple["Wait", ...]:
        """Every retry that waits for its time."""
        return tuple(
            Wait(frame=frame.id, call=call, until=until)
            for frame in self.frames.values()
            for call, until in (
                (None, frame.until),
                *((call.id, call.until) for call in frame.of_turn()),
            )
            if until is not None
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
        case Phase.CANCELLING:
            return RunStatus.CANCELLING
        case Phase.NEW | Phase.STARTED if held:
            return RunStatus.RUNNING
        case Phase.NEW | Phase.STARTED if now.pending:
            return RunStatus.SUSPENDED
        case Phase.NEW | Phase.STARTED:
            return RunStatus.WAITING if now.waits() else RunStatus.QUEUED
        case _ as never:
            assert_never(never)

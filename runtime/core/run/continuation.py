"""The continuation: everything needed to resume a run, as immutable data.

It holds frames, their calls and open gates.

Run, frame and call have neither slots nor `__post_init__`, so `replace` may copy their `__dict__`. Long tuples are
concatenated with `+`, which copies them once, and not at all if there is nothing to add. Unpacking into a new tuple
copies twice.

The origin of a run names the people who started or steered it. They cannot decide in it. It holds the requester, the
people who made the schedule that started it, the senders of messages and events that a worker received, and the people
who tried the run again after a failure. A forked or imported run adds the person who forked or imported it, and the
origin of the run before. It is folded from the journal, so the journal's MACs cover it. A reviewer who wrote to the run
is in the origin of each gate that opens afterwards, because their message may have led to it. Reviewers are kept apart,
because their message has not led to the gates that were already open.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, assert_never
from uuid import UUID

from runtime.core.run.events import BlobRef, PinnedPrompt, Proposal, Remembered, RetryCause
from runtime.core.values.budgets import NOTHING, BudgetGate, BudgetLimits, Rates, Spent
from runtime.core.values.call_options import (
    MODEL_OPTIONS,
    CallOptions,
    CompactionOptions,
    ModelOptions,
)
from runtime.core.values.enums import CallPreview, CallState, GateKind, Verdict
from runtime.core.values.errors import UnknownSubject
from runtime.core.values.ids import ROOT, turn_mark
from runtime.core.values.json_values import is_equal

# Constants and no settings, so that a later fold of a journal ends its run at the same entry
MAX_DEPTH = 16
MAX_REFUSALS = 5
MAX_DENIALS = 3  # turns in which one tool was denied
MAX_SAME_REPLIES = 5  # in a row, with the same results, before people are asked
MAX_REVISIONS = 10  # the last revision of a call, to which no person can request changes

__all__ = ["replace"]  # which the type checker takes for an import

if TYPE_CHECKING:
    from dataclasses import replace  # the type checker knows the fields of this one
else:
    _new, _set = object.__new__, object.__setattr__

    def replace(original: Any, **changes: Any) -> Any:
        """Copy a part of a continuation with these fields changed, several times as fast as `dataclasses.replace`.

        Each event changes a run, a frame and a call, which have many fields: they are copied in one step.
        """
        copy = _new(original.__class__)
        _set(copy, "__dict__", original.__dict__ | changes)
        return copy


class Phase(StrEnum):
    """The phases of a whole run."""

    NEW = "new"  # nothing has happened
    STARTED = "started"  # its agents work or wait
    COMPLETED = "completed"  # the root agent answered
    FAILED = "failed"  # the root agent could not answer
    CANCELLING = "cancelling"  # nothing new starts; running calls may finish
    CANCELLED = "cancelled"  # a person ended it
    EXPORTED = "exported"  # it moved to another installation


class Pace(StrEnum):
    """Whether a run may start anything new."""

    RUNNING = "running"
    PAUSED = "paused"  # until a person resumes it


class RunStatus(StrEnum):
    """The status that people see; derived from the run's state, with a copy in its row."""

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
    """The states of a frame."""

    ASKING = "asking"  # waits for its model
    RETRYING = "retrying"  # waits for the next attempt at its model call
    ACTING = "acting"  # waits for the calls of its turn
    ANSWERED = "answered"  # to be closed with its answer
    FAILED = "failed"  # to be closed with its error
    CLOSED = "closed"  # finished; it leaves the continuation


@dataclass(frozen=True, slots=True, kw_only=True)
class Edited:
    """The person who last changed the arguments of a call, and the arguments that its model had `proposed`.

    If a person gave them `in_fork`, they replace the model's for good: the call is asked again about them. A call of a
    reply that a person gave has them for its proposed ones. If `by` approved the call with other arguments than those,
    `given` are those, and `given_by` is the person of the fork.
    """

    by: str
    proposed: Any
    in_fork: bool = False
    given: Any = None
    given_by: str = ""

    @property
    def of_fork(self) -> bool:
        """Tell whether a person gave arguments in a fork, even if another one changed them later."""
        return self.in_fork or self.given_by != ""

    def is_of_reply(self, args: Any) -> bool:
        """Tell whether these are the arguments that a person gave with a whole reply."""
        return self.in_fork and is_equal(args, self.proposed)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToRevise:
    """A person requested changes to `call` of `tool` at `gate`, its revision `number`: the next one revises it."""

    tool: str
    call: str
    gate: UUID
    number: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """The `number` of a call that revises the one asked at `gate`; the second proposal is revision 2."""

    gate: UUID
    number: int


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call. `gate` is the last gate opened for it; `result` goes to the model once the call is settled.

    `failures` counts attempts that ended in an error, not those whose worker died. `reported_by` is the person who
    reported the result, or with `answered` gave it instead of the call, empty if the policy gave it. `stored` replaces
    a result that is stored by its hash. `verdict` is kept if the model must learn more than the state says: an expiry,
    a request for changes, or a call that was given up. `edited` is set if a person changed `args`. `preview` is the
    newest one, until a gate shows it or the call starts; `shown` is the one that the last gate showed. `revises` is set
    if the call revises an earlier one. A settled call has none of these three. `credential` says which credential
    people must replace before the call starts again, and how. `changed_by` is the person who replaced the result in a
    fork.
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
    answered: bool = False
    verdict: Verdict | None = None
    edited: Edited | None = None
    preview: CallPreview | None = None
    shown: CallPreview | None = None
    revises: Revision | None = None
    credential: str = ""
    changed_by: str | None = None

    @property
    def proposed(self) -> Any:
        """The arguments as the model proposed them."""
        return self.args if self.edited is None else self.edited.proposed


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanItem:
    """One item of the plan that a frame's model keeps."""

    text: str
    state: Literal["open", "doing", "done"] = "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """An outage of a frame's models: its start, and the last `error`.

    `rounds` counts the failed rounds in which all models of the agent were called. From the first on, people are
    asked at `asks_at`. `limited` is the model whose provider puts the call off by its rate limit, empty if none does;
    `tries` counts how often that happened.
    """

    since: datetime
    error: str
    rounds: int = 0
    asks_at: datetime | None = None
    limited: str = ""
    tries: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CutReply:
    """A reply of a frame's model that was cut off: its beginning, about how many tokens had come, and since when.

    `cause` is that of its RetryScheduled: an `error`, a person's `message`, or a `lost` worker.
    """

    text: str
    tokens: int
    since: datetime
    cause: RetryCause = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenReply:
    """The reply that the person `by` gave in a fork, in the place of the next one of a frame's model."""

    by: str
    text: str = ""
    calls: tuple[Proposal, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Frame:
    """One activation of one agent. It works on `call` of the frame `parent`; the root has neither.

    `attempt` counts the attempts at the model call of this turn, `failures` those that failed at `model`. `model` is
    the one to call next; empty means the agent's first. `ticket` is the frame's number in the queue of a rate-limited
    provider, 0 for none. `outage` is set while no model replies. `cleared` is the turn at which a person last
    released the frame from a hold that opened at `cleared_at`. `spent` is the usage of the frame and everything below
    it, `context` the tokens of its last model call. `since` is the run's active time in seconds when the frame
    opened. `instructions` is the text that a function or a prompt made of the input, empty if the agent's
    instructions are a text; `pinned` is the version of the prompt. `to_revise` lists the calls to which people
    requested changes and which no call has revised yet. `plan` has the steps that the author declared, `todo` the plan
    that the model keeps. `cut` is the reply of this turn that was cut off last. At most `at_once` calls of this turn
    are open together, all of them if it is 0. An `item` is one of a list: `refusals` counts its calls and those below
    it that could not be made. `given` takes the place of the next reply.
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
    budget: BudgetLimits | None = None
    rates: Rates | None = None
    spent: Spent = NOTHING
    context: int = 0
    since: float = 0.0
    instructions: str = ""
    to_revise: tuple[ToRevise, ...] = ()
    todo: tuple[PlanItem, ...] = ()
    cut: CutReply | None = None
    pinned: PinnedPrompt | None = None
    at_once: int = 0
    item: bool = False
    refusals: int = 0
    given: GivenReply | None = None

    def list_turn_calls(self) -> tuple[Call, ...]:
        """Return the calls of the current turn, in the order in which the model proposed them."""
        begin, mark = len(self.calls), turn_mark(self.turn)
        while begin and self.calls[begin - 1].id.startswith(mark):
            begin -= 1
        return self.calls[begin:]

    def open_calls(self) -> tuple[Call, ...]:
        """Return the calls of the turn while one of them has no result; none after that."""
        return self.list_turn_calls() if self.state is FrameState.ACTING else ()

    def find(self, call: str) -> Call:
        """Return the call with this id. Raises UnknownSubject.

        It searches from the end, where the calls of the current turn are: a long run must not search them all.
        """
        for item in reversed(self.calls):
            if item.id == call:
                return item
        raise UnknownSubject("call", f"{self.id}/{call}")

    def with_call(self, call: Call) -> "Frame":
        """Return the frame with this call in place of the one with its id."""
        for index in range(len(self.calls) - 1, -1, -1):
            if self.calls[index].id == call.id:
                calls = (*self.calls[:index], call, *self.calls[index + 1 :])
                return replace(self, calls=calls)
        raise UnknownSubject("call", f"{self.id}/{call.id}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """One open gate. `path` goes from the root agent to the tool.

    For a gate of a frame, `call` is empty and `path` ends at the frame's agent. `version` is the fingerprint under
    which the frame continues after a version gate.
    """

    gate: UUID
    kind: GateKind
    frame: str
    call: str
    path: tuple[str, ...]
    expires_at: datetime | None = None
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inquiry:
    """An inquiry of a person about `call`, which waits at `gate`, that the agent has not answered yet."""

    id: UUID
    gate: UUID
    frame: str
    call: str
    by: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """A wait and its due time. `call` is None for the frame's model call."""

    frame: str
    call: str | None
    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """The person who paused the run, with the reason if one was given."""

    by: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Denial:
    """A person denied a call of `tool`, proposed in `turn`, which `ids.make_turn_key` names.

    Its turn counts towards MAX_DENIALS of the run until the failed run is tried again; that of an item of a list counts
    for the item alone. With `changes` the person requested changes instead, which never counts.
    """

    tool: str
    turn: str
    reason: str
    counts: bool = True
    changes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Undelivered:
    """A message that the root's model has not received yet."""

    by: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Continuation:
    """A run at `position`: the fold of its journal up to the entry whose MAC is `head`.

    `short` is the subject of the last limit gate. `worked` is active time in seconds up to `ticking`, which is None
    while the clock stands still. Both are kept only if a limit is set. `left` holds the frames of a failed run, which
    may be tried again. `denials` are by action digest; such an action is refused from then on. `edits` name the person
    who changed the arguments of an action, by its digest; such an action is asked again even if policy would not ask.
    `questions` are unanswered and about calls of `pending`. `reviewers` wrote to the run as reviewers. `memory` is what
    the run remembers of earlier runs of its `thread`, which its model sums up if `memory_tokens` are set.
    """

    run: UUID
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
    questions: tuple[Inquiry, ...] = ()
    usage: dict[str, int] = field(default_factory=dict)
    refusals: int = 0
    denials: dict[str, Denial] = field(default_factory=dict)
    edits: dict[str, str] = field(default_factory=dict)
    cancelled_by: str = ""
    outcome: Any = None
    paused: Pause | None = None
    budget: BudgetLimits | None = None
    spent: Spent = NOTHING
    short: BudgetGate | None = None
    worked: float = 0.0
    ticking: datetime | None = None
    unheard: tuple[Undelivered, ...] = ()
    origin: tuple[str, ...] = ()
    reviewers: tuple[str, ...] = ()
    business_key: str | None = None
    thread: str | None = None
    memory: tuple[Remembered, ...] = ()
    memory_tokens: int = 0

    def frame(self, frame: str) -> Frame:
        """Return the frame with this id. Raises UnknownSubject."""
        try:
            return self.frames[frame]
        except KeyError:
            raise UnknownSubject("frame", frame) from None

    def call(self, frame: str, call: str) -> Call:
        """Return a call of a frame. Raises UnknownSubject."""
        return (self.frames.get(frame) or self.frame(frame)).find(call)  # often asked

    def with_frame(self, frame: Frame) -> "Continuation":
        """Return the continuation with this frame in place of the one with its id."""
        return replace(self, frames={**self.frames, frame.id: frame})

    def path(self, frame: str, tool: str = "") -> tuple[str, ...]:
        """Return the agents from the root down to `frame`, then the tool if one is named."""
        names = [tool] if tool else []
        at: str | None = frame
        while at is not None:
            here = self.frames.get(at) or self.frame(at)
            names.append(here.agent)
            at = here.parent
        return tuple(reversed(names))

    @property
    def root(self) -> Frame | None:
        """Return the frame of the root agent, None before it opens."""
        return self.frames.get(ROOT)

    @property
    def ended(self) -> bool:
        """Whether the run has ended here."""
        return self.phase in (Phase.COMPLETED, Phase.FAILED, Phase.CANCELLED, Phase.EXPORTED)

    @property
    def pace(self) -> Pace:
        """Whether the run is paused."""
        return Pace.RUNNING if self.paused is None else Pace.PAUSED

    @property
    def is_paused(self) -> bool:
        """Whether the run is paused, so nothing new may start. The run may still end."""
        return self.paused is not None and self.phase is Phase.STARTED

    def waits(self) -> tuple[Wait, ...]:
        """Everything with a due time. A paused run has none until it is resumed."""
        if self.paused is not None and self.is_paused:
            return ()
        retries, waiting = self._waits()
        return (*retries, *waiting)

    def retries(self) -> tuple[Wait, ...]:
        """List the retries and their due times."""
        return () if self.is_paused else tuple(self._waits()[0])

    @property
    def outage_error(self) -> str | None:
        """The last answer of a failing model provider that the run waits for. None if no frame waits for one."""
        for frame in self.frames.values():
            if frame.outage is not None and frame.state is FrameState.RETRYING:
                return frame.outage.error
        return None

    def waiting(self) -> tuple[Wait, ...]:
        """List the calls that only wait."""
        return () if self.is_paused else self.list_all_waiting()

    def list_all_waiting(self) -> tuple[Wait, ...]:
        """List the calls that only wait, also in a paused run."""
        return tuple(self._waits()[1])

    def _waits(self) -> tuple[list[Wait], list[Wait]]:
        """Return the retries, and the calls that only wait."""
        retries: list[Wait] = []
        waiting: list[Wait] = []
        for frame in self.frames.values():
            if frame.until is not None:
                retries.append(Wait(frame=frame.id, call=None, until=frame.until))
            for call in frame.list_turn_calls() if frame.state is FrameState.ACTING else ():
                if call.until is not None:
                    wait = Wait(frame=frame.id, call=call.id, until=call.until)
                    (waiting if call.state is CallState.WAITING else retries).append(wait)
        return retries, waiting


def list_calls_in_doubt(now: Continuation) -> tuple[tuple[str, Call], ...]:
    """List the calls whose outcome is unknown, each with its frame."""
    calls = []
    for frame in now.frames.values():
        if frame.state is FrameState.ACTING:
            calls += [
                (frame.id, call)
                for call in frame.list_turn_calls()
                if call.state is CallState.UNKNOWN
            ]
    return tuple(calls)


def derive_status(now: Continuation, *, leased: bool) -> RunStatus:
    """Return the status of a verified run; `leased` says whether a worker has its lease."""
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
        case Phase.NEW | Phase.STARTED if now.paused is not None:
            return RunStatus.PAUSED
        case Phase.NEW | Phase.STARTED if leased:
            return RunStatus.RUNNING
        case Phase.NEW | Phase.STARTED if now.pending:
            return RunStatus.SUSPENDED
        case Phase.NEW | Phase.STARTED:
            return RunStatus.WAITING if now.waits() else RunStatus.QUEUED
        case _ as never:
            assert_never(never)


# The origin


def merge_people(*groups: Iterable[str]) -> tuple[str, ...]:
    """Return each person of these groups once, in order."""
    return tuple(dict.fromkeys(filter(None, chain.from_iterable(groups))))


def add_people(now: Continuation, *people: str) -> Continuation:
    """Add these people to the origin."""
    origin = merge_people(now.origin, people)
    return now if origin == now.origin else replace(now, origin=origin)


def add_reviewer(now: Continuation, reviewer: str) -> Continuation:
    """Keep the name of a reviewer who wrote to the run."""
    return replace(now, reviewers=merge_people(now.reviewers, [reviewer]))


def list_steering_people(now: Continuation) -> tuple[str, ...]:
    """Return the people who cannot decide at a gate that opens now: the origin, and reviewers who wrote."""
    return merge_people(now.origin, now.reviewers) if now.reviewers else now.origin

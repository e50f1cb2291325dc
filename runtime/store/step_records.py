"""The records of a step: its changes, one for each event, and the writes and effects that follow from them.

A step that is built again keeps the changes of received messages; the rest is built anew from the committed state.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Any, TypeVar
from uuid import UUID

from django.conf import settings

from runtime.core.documents.blobs import WITH_CONTENT, Blob, extract_blob
from runtime.core.run.continuation import Continuation, Pending
from runtime.core.run.events import (
    CallRefused,
    Event,
    FrameClosed,
    GateClosed,
    GateDecided,
    GateOpened,
    OutcomeArrived,
    OutcomeUnknown,
    ToolFailed,
    ToolReturned,
    ToolStarted,
    WaitEnded,
    WaitStarted,
)
from runtime.core.run.planning import AnswerInquiry, CallModel, StartTool
from runtime.core.values.call_options import CallOptions
from runtime.core.values.enums import CallState, GateKind, Verdict
from runtime.ports import wiring
from runtime.ports.approvals import CallOutcome, EndedCall, ReviewSnapshot
from runtime.store.tables.used_approvals import Spend


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewCall:
    """Preview a call under these options. It is a read effect without an intent: a lost one is made again."""

    frame: str
    call: str
    terms: CallOptions


Work = CallModel | AnswerInquiry | PreviewCall | StartTool
E = TypeVar("E", bound=Event)

# The events from which a part of a step follows that most steps do not have.
_WITH_PARTS = (
    GateOpened,
    GateDecided,
    GateClosed,
    OutcomeArrived,
    OutcomeUnknown,
    WaitStarted,
    WaitEnded,
)

# The events that end a call, leave it in doubt, or use up its approval.
_ENDS = (
    ToolReturned,
    ToolFailed,
    CallRefused,
    OutcomeUnknown,
    OutcomeArrived,
    WaitEnded,
    GateDecided,
    GateOpened,
    FrameClosed,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEvent:
    """An event with its data.

    `blob` is its result if that is stored by its hash, `snapshot` the one for the gate it opens. `work` is the
    call that starts once the step is written. `closed` is the reason why the gate of a late outcome needs no person.
    """

    event: Event
    blob: Blob | None = None
    snapshot: ReviewSnapshot | None = None
    work: StartTool | None = None
    closed: str = ""


_event: Callable[[RecordedEvent], Event] = attrgetter("event")


def record_event(
    event: Event,
    *,
    snapshot: ReviewSnapshot | None = None,
    work: StartTool | None = None,
    closed: str = "",
) -> RecordedEvent:
    """Return the record of an event; a result too big for the journal becomes `content`."""
    blob = None
    if isinstance(event, WITH_CONTENT):
        outside = None if wiring.objects() is None else settings.SIGNOFF_OBJECT_BYTES
        event, blob = extract_blob(event, outside_above=outside)
    return RecordedEvent(event=event, blob=blob, snapshot=snapshot, work=work, closed=closed)


class Records:
    """The changes of one step in order, and the writes that follow from them.

    `signals` are consumed by the step, even if they changed nothing. `work` starts once the step is written; its slots
    are reserved. `ended_replies` are frames whose model call has ended and left a part of its reply. `snapshots` are
    those for the gates that the step opens.
    """

    def __init__(self) -> None:
        self.changes: list[RecordedEvent] = []
        self.snapshots: list[ReviewSnapshot] = []
        self.signals: list[int] = []
        self.work: list[Work] = []
        self.ended_replies: frozenset[str] = frozenset()
        self._events: dict[type, list[Any]] = {}  # by type: most steps have few types
        self._blobs: list[Blob] = []

    def add(self, change: RecordedEvent) -> None:
        """Add a change."""
        self.changes.append(change)
        self._events.setdefault(type(change.event), []).append(change.event)
        if change.blob is not None:
            self._blobs.append(change.blob)
        if change.snapshot is not None:
            self.snapshots.append(change.snapshot)
        if change.work is not None:
            self.work.append(change.work)

    @property
    def events(self) -> tuple[Event, ...]:
        """The events of the step."""
        return tuple(map(_event, self.changes))

    @property
    def blobs(self) -> tuple[Blob, ...]:
        """The results that are stored by their hash."""
        return tuple([blob for blob in self._blobs if not blob.is_summary]) if self._blobs else ()

    @property
    def summary(self) -> Blob | None:
        """The summary of what the run remembers, if it is made in this step."""
        return next((blob for blob in reversed(self._blobs) if blob.is_summary), None)

    def parts(self, before: Continuation, now: Continuation) -> dict[str, Any]:
        """Return the fields that most steps leave empty, of the step that leads from one state to the other."""
        if not self._blobs and self._events.keys().isdisjoint(_WITH_PARTS):
            return {}
        summary = self.summary
        return {
            "opened_gates": self.opened_gates(now),
            "settled": tuple(event.gate for event in self.of(GateDecided)),
            "closed": tuple(chain.from_iterable(self.closed.values())),
            "opened_waits": self.opened_waits(now),
            "ended_waits": self.ended_waits,
            "first": self.needs_first,
            "summary": summary,
            "summed_up": tuple(text.digest for text in before.memory) if summary else (),
        }

    @property
    def closed(self) -> dict[str, list[UUID]]:
        """The closed gates, by reason."""
        gates: dict[str, list[UUID]] = {}
        for change in self.changes:
            if isinstance(change.event, GateClosed):
                gates.setdefault(change.event.reason, []).append(change.event.gate)
            elif isinstance(change.event, OutcomeArrived) and change.event.gate is not None:
                gates.setdefault(change.closed, []).append(change.event.gate)
        return gates

    def opened_gates(self, now: Continuation) -> tuple[Pending, ...]:
        """Return the gates that the step opens and that are still open in `now`, the state after it."""
        gates = {event.gate for event in self.of(GateOpened)}
        return tuple(pending for pending in now.pending if pending.gate in gates)

    def opened_waits(self, now: Continuation) -> tuple[WaitStarted, ...]:
        """Return the waits for an event that begin with the step and are still open in `now`."""
        return tuple(wait for wait in self.of(WaitStarted) if _has_row(now, wait))

    @property
    def ended_waits(self) -> tuple[tuple[str, str], ...]:
        """Frame and call of every wait that ends without its event.

        An event would have deleted the wait's row itself.
        """
        ended = [end for end in self.of(WaitEnded) if end.outcome in ("timed_out", "closed")]
        ends: list[WaitEnded | OutcomeUnknown] = [*self.unreported, *ended]
        return tuple((end.frame, end.call) for end in ends if end.call)

    @property
    def unreported(self) -> list[OutcomeUnknown]:
        """The calls in doubt whose instances reported nothing: no worker attempted them."""
        return [event for event in self.of(OutcomeUnknown) if event.attempt == 0]

    @property
    def needs_first(self) -> bool:
        """Whether no signal may come before the step.

        A wait times out, a late outcome settles a call, or an allowance passes one: a message adds to the run's origin.
        """
        return (
            bool(self.unreported or self.of(OutcomeArrived))
            or any(gate.allowance for gate in self.of(GateDecided))
            or any(wait.outcome == "timed_out" for wait in self.of(WaitEnded))
        )

    def spent(self, now: Continuation) -> tuple[Spend, ...]:
        """Return the approvals used to start calls, each with the attempt."""
        return tuple(
            [
                (gate, event.attempt)
                for event in self.of(ToolStarted)
                if (gate := now.call(event.frame, event.call).gate) is not None
            ]
        )

    def ended(self, before: Continuation) -> tuple[EndedCall, ...]:
        """Return the calls with a decision that end with the step, fall into doubt, or need another decision.

        The gate is that of the state before the step.
        """
        if self._events.keys().isdisjoint(_ENDS):
            return ()
        ended: dict[tuple[str, str], EndedCall] = {}
        for event in map(_event, self.changes):
            if type(event) not in _ENDS:
                continue
            path, outcome = _end(event, before), _outcome(event)
            if path is None or outcome is None:
                continue
            frame, call = path
            for proposed in before.frame(frame).of_turn():  # not among them: proposed in this step
                if proposed.id == call and proposed.gate is not None:
                    ended[path] = EndedCall(
                        gate=proposed.gate, frame=frame, call=call, outcome=outcome
                    )
        return tuple(ended.values())

    def of(self, kind: type[E]) -> Sequence[E]:
        """Return the events of a type."""
        return self._events.get(kind, ())


def _end(event: Event, before: Continuation) -> tuple[str, str] | None:
    """Return frame and call of the call that ends with the event. A delegated call ends with its child frame."""
    frame, call = getattr(event, "frame", None), getattr(event, "call", None)
    if isinstance(event, FrameClosed):
        child = before.frames.get(event.frame)
        frame, call = (None, None) if child is None else (child.parent, child.call)
    of = before.frames.get(frame or "")
    return None if of is None or not call else (of.id, call)


def _outcome(event: Event) -> CallOutcome | None:
    match event:
        case (
            ToolReturned()
            | OutcomeArrived(outcome="returned")
            | WaitEnded(outcome="arrived" | "timed_out")
            | GateDecided(verdict=Verdict.HAPPENED)
            | FrameClosed(outcome="answered")
        ):
            return CallOutcome.DONE
        case (
            ToolFailed()
            | CallRefused()
            | OutcomeArrived()
            | WaitEnded(outcome="refused")
            | GateDecided(verdict=Verdict.GIVE_UP)
            | FrameClosed()
        ):
            return CallOutcome.FAILED
        case GateDecided(verdict=Verdict.ANSWER):
            return CallOutcome.ANSWERED
        case OutcomeUnknown():
            return CallOutcome.IN_DOUBT
        case GateOpened(kind=GateKind.APPROVAL):
            return CallOutcome.ASKED_AGAIN
        case _:
            return None


def _has_row(now: Continuation, wait: WaitStarted) -> bool:
    """Say whether a wait that begins has a row, and is still open. That for an outcome keeps its first one."""
    if wait.at is not None or not waits(now, wait.frame, wait.call):
        return False
    terms = now.call(wait.frame, wait.call).terms
    return terms is not None and terms.waits != "time"


def waits(now: Continuation, frame: str, call: str) -> bool:
    """Say whether a call waits for its event."""
    owner = now.frames.get(frame)
    return owner is not None and any(
        proposed.id == call and proposed.state is CallState.WAITING for proposed in owner.of_turn()
    )

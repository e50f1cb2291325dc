"""A step: its records of changes, one for each event, and its commit in one statement.

A step that is built again keeps the received events; the rest is built anew from the committed state.

The statement writes outcomes, the next intents, gates, signals and the run's row. The module of each table has the part
that writes it, and approvals adds the parts for its requests. All parts depend on the run's row, which is changed only
for the epoch, owner and position of the claim. If the row is not found, the step is not written.
"""

import json
import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from functools import cache
from itertools import chain, compress
from operator import attrgetter
from typing import Any
from uuid import UUID

import psycopg
from django.conf import settings
from pydantic import TypeAdapter

from runtime.core.documents.blobs import WITH_CONTENT, Blob, extract_blob
from runtime.core.documents.continuations import Brief
from runtime.core.run.continuation import Continuation, Pending
from runtime.core.run.events import (
    CallRefused,
    Event,
    FrameClosed,
    GateClosed,
    GateDecided,
    GateOpened,
    ModelFailed,
    OutcomeArrived,
    OutcomeUnknown,
    RetryScheduled,
    ToolFailed,
    ToolReturned,
    ToolStarted,
    WaitEnded,
    WaitStarted,
)
from runtime.core.run.planning import AnswerInquiry, CallModel, StartTool
from runtime.core.run.retries import RateLimitWait, rate_limit_waits
from runtime.core.values.call_options import CallOptions
from runtime.core.values.enums import CallState, GateKind
from runtime.core.values.verdicts import VERDICTS
from runtime.errors import Tampered
from runtime.ports import wiring
from runtime.ports.approvals import CallOutcome, EndedCall, ReviewSnapshot, StatementPart
from runtime.store import failpoints, gates, leases, pool
from runtime.store.leases import RunClaim
from runtime.store.pool import Connection
from runtime.store.tables import (
    blobs,
    continuations,
    partial_replies,
    signals,
    used_approvals,
    waits,
)
from runtime.store.tables.journal import APPEND, SignedEntry, was_written
from runtime.store.tables.used_approvals import Spend


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewCall:
    """Preview a call under these options. It is a read effect without an intent: a lost one is made again."""

    frame: str
    call: str
    terms: CallOptions


Work = CallModel | AnswerInquiry | PreviewCall | StartTool

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


class Records:
    """The events of one step in order, and the writes that follow from them.

    `received` are the events as they were added, `events` as they are journaled. `signals` are consumed by the step,
    even if they changed nothing. `work` starts once the step is written; its slots are reserved. `ended_replies` are
    frames whose model call has ended and left a part of its reply. `snapshots` are those for the gates that the step
    opens. `blobs` are the results that are stored by their hash, `summary` sums up what the run remembers. `closed` are
    the closed gates, by reason.
    """

    def __init__(self) -> None:
        self.received: list[Event] = []
        self.events: list[Event] = []
        self.by_type: dict[type[Event], list[Any]] = {}  # the events; most steps have few types
        self.snapshots: list[ReviewSnapshot] = []
        self.signals: list[int] = []
        self.work: list[Work] = []
        self.ended_replies: frozenset[str] = frozenset()
        self.blobs: list[Blob] = []
        self.summary: Blob | None = None
        self.closed: dict[str, list[UUID]] = {}

    def add(self, event: Event, closed: str = "") -> Event:
        """Add an event and return it as journaled: without a result that is stored by its hash.

        `closed` is the reason why the gate of a late outcome needs no person.
        """
        self.received.append(event)
        if isinstance(event, WITH_CONTENT):
            outside = None if wiring.find_object_store() is None else settings.SIGNOFF_OBJECT_BYTES
            event, blob = extract_blob(event, outside_above=outside)
            if blob is not None and blob.is_summary:
                self.summary = blob
            elif blob is not None:
                self.blobs.append(blob)
        if isinstance(event, GateClosed):
            self.closed.setdefault(event.reason, []).append(event.gate)
        elif isinstance(event, OutcomeArrived) and event.gate is not None:
            self.closed.setdefault(closed, []).append(event.gate)
        self.events.append(event)
        self.by_type.setdefault(type(event), []).append(event)
        return event

    def parts(self, before: Continuation, now: Continuation) -> dict[str, Any]:
        """Return the fields that most steps leave empty, of the step that leads from one state to the other."""
        if self.summary is None and self.by_type.keys().isdisjoint(_WITH_PARTS):
            return {}
        opens, settles, waits_begun, waits_ended, first = set[UUID](), [], [], [], False
        for event in self.events:
            match event:
                case GateOpened():
                    opens.add(event.gate)
                case GateDecided():
                    settles.append(event.gate)
                    first = first or event.allowance is not None
                case OutcomeArrived():
                    first = True
                case WaitStarted() if _has_row(now, event):
                    waits_begun.append(event)
                # An event would have deleted the row of its wait itself. A call in doubt that no worker attempted
                # is one whose instance reported nothing.
                case WaitEnded(outcome="timed_out" | "closed") | OutcomeUnknown(attempt=0):
                    waits_ended.append((event.frame, event.call or ""))
                    first = first or event.type == "OutcomeUnknown" or event.outcome == "timed_out"
        return {
            # As far as they are still open after the step.
            "opened_gates": tuple([gate for gate in now.pending if gate.gate in opens]),
            "settled": tuple(settles),
            "closed": tuple(chain.from_iterable(self.closed.values())),
            "opened_waits": tuple(waits_begun),
            "ended_waits": tuple(waits_ended),
            # No signal may come before the step: a wait times out, a late outcome settles a call, or an allowance
            # passes one, where a message adds to the run's origin.
            "first": first,
            "summary": self.summary,
            "summed_up": tuple([text.digest for text in before.memory]) if self.summary else (),
        }

    def list_spent_approvals(self, now: Continuation) -> tuple[Spend, ...]:
        """Return the approvals used to start calls, each with the attempt."""
        return tuple(
            [
                (gate, event.attempt)
                for event in self.by_type.get(ToolStarted, ())
                if (gate := now.call(event.frame, event.call).gate) is not None
            ]
        )

    def ended(self, before: Continuation) -> tuple[EndedCall, ...]:
        """Return the calls with a decision that end with the step, fall into doubt, or need another decision.

        The gate is that of the state before the step.
        """
        if self.by_type.keys().isdisjoint(_ENDS):
            return ()
        ended: dict[tuple[str, str], EndedCall] = {}
        for event in self.events:
            if type(event) not in _ENDS:
                continue
            path = getattr(event, "frame", None), getattr(event, "call", None)
            if isinstance(event, FrameClosed):  # which ends the call that delegated to it
                child = before.frames.get(event.frame)
                path = (None, None) if child is None else (child.parent, child.call)
            frame = before.frames.get(path[0] or "")
            if frame is None or not path[1]:
                continue
            for call in frame.list_turn_calls():  # not among them: proposed in this step
                if call.id == path[1] and call.gate is not None:
                    outcome = _classify_outcome(event)
                    if outcome is not None:
                        ended[frame.id, call.id] = EndedCall(
                            gate=call.gate, frame=frame.id, call=call.id, outcome=outcome
                        )
        return tuple(ended.values())


_BY_STATE: Mapping[CallState | None, CallOutcome] = {
    CallState.RETURNED: CallOutcome.DONE,
    CallState.FAILED: CallOutcome.FAILED,
}


def _classify_outcome(event: Event) -> CallOutcome | None:
    match event:
        case (
            ToolReturned()
            | OutcomeArrived(outcome="returned")
            | WaitEnded(outcome="arrived" | "timed_out")
            | FrameClosed(outcome="answered")
        ):
            return CallOutcome.DONE
        case (
            ToolFailed()
            | CallRefused()
            | OutcomeArrived()
            | WaitEnded(outcome="refused")
            | FrameClosed()
        ):
            return CallOutcome.FAILED
        case GateDecided():
            rule = VERDICTS[event.verdict]
            return CallOutcome.ANSWERED if rule.replaces_call else _BY_STATE.get(rule.call_becomes)
        case OutcomeUnknown():
            return CallOutcome.IN_DOUBT
        case GateOpened(kind=GateKind.APPROVAL):
            return CallOutcome.ASKED_AGAIN
        case _:
            return None


def _has_row(now: Continuation, wait: WaitStarted) -> bool:
    """Say whether a wait that begins has a row, and is still open. That for an outcome keeps its first one."""
    if wait.at is not None or not is_waiting(now, wait.frame, wait.call):
        return False
    terms = now.call(wait.frame, wait.call).terms
    return terms is not None and terms.waits != "time"


def is_waiting(now: Continuation, frame: str, call: str) -> bool:
    """Say whether a call waits for its event."""
    owner = now.frames.get(frame)
    return owner is not None and any(
        proposed.id == call and proposed.state is CallState.WAITING
        for proposed in owner.list_turn_calls()
    )


# Optional parts of a step, with the field that requires each, in the order of the statement. Most steps need none of
# them, and do not pay for them.
_PARTS = (
    ("continued", continuations.REPLACE, "continuation"),
    ("dropped", continuations.DROP, "ended"),
    ("opened", gates.OPEN, "opened_gates"),
    ("settled", gates.TAKE_EFFECT, "settled"),
    ("closed", gates.CLOSE, "closed"),
    ("consumed", signals.CONSUME, "signals"),
    ("stored", blobs.STORE, "blobs"),
    ("referred", blobs.REFER, "blobs"),
    ("pinned", continuations.PIN, "pins"),
    ("awaited", waits.OPEN, "opened_waits"),
    ("given_up", waits.CLOSE, "ended_waits"),
    ("spent", used_approvals.SPEND, "spent"),
    ("unkept", partial_replies.DROP, "ended_replies"),
    ("summarised", blobs.SUMMARISE, "summary"),
    ("recalling", blobs.RECALL, "summary"),
)
_OWN = tuple((name, sql) for name, sql, _ in _PARTS)
_needed = attrgetter(*(field for *_, field in _PARTS))


class CommitResult(Enum):
    """The result of a commit: written, or not written because of new signals or a lost lease."""

    WRITTEN = auto()
    NEW_SIGNALS = auto()
    LOST = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One commit, of the `kind` of its last event, and the state that it leads to.

    `awaits` is the last answer of a provider that the run waits for. `continuation` is written from time to time in a
    long run; `release` releases the run until `due`. `blobs` are the results that its events refer to. With `pins`
    its continuation becomes the base of the run. `opened_waits` are calls that begin to wait for an event,
    `ended_waits` the places of calls whose wait has ended. With `first` the step is valid only if no signal came
    before: a wait times out, or a late outcome settles a call. `spent` are the approvals under which it starts calls.
    `ended_replies` are frames whose model call has ended: the part of the reply is deleted. `summary` sums up the
    contents `summed_up`; it is stored if all of these exist.
    """

    claim: RunClaim
    state: Continuation
    kind: str
    depth: int
    entry: SignedEntry
    status: str
    output: str | None
    reason: str | None
    awaits: str | None
    unheard: int
    ended: bool
    release: bool
    due: datetime | None
    signal_version: int
    continuation: Brief | None
    signals: tuple[int, ...]
    opened_gates: tuple[Pending, ...] = ()
    settled: tuple[UUID, ...] = ()
    closed: tuple[UUID, ...] = ()
    blobs: tuple[Blob, ...] = ()
    pins: bool = False
    opened_waits: tuple[WaitStarted, ...] = ()
    ended_waits: tuple[tuple[str, str], ...] = ()
    first: bool = False
    spent: tuple[Spend, ...] = ()
    ended_replies: tuple[str, ...] = ()
    summary: Blob | None = None
    summed_up: tuple[str, ...] = ()


def commit(
    connection: Connection, step: Step, extra_statements: Sequence[StatementPart] = ()
) -> CommitResult:
    """Write the step, with the parts that approvals adds.

    If the connection broke during an earlier attempt, the step is looked up in the journal and may count as written.
    Raises Tampered if an approval was used before, with nothing written, or psycopg.OperationalError if the
    connection breaks.
    """
    failpoints.hit("before", step.kind, step.depth)
    advance = leases.advance(
        suspends=step.continuation is not None,
        ends=step.ended,
        releases=step.release,
        # Such a step depends on the signals that were read. A signal that came since makes the runner build it again.
        strict=step.release or bool(step.signals) or bool(step.opened_gates) or step.first,
    )
    parts, parameters = tuple(compress(_OWN, _needed(step))), _build_parameters(step)
    for extra in extra_statements:
        parts += ((extra.name, extra.sql),)
        parameters |= extra.parameters
    statement = _build_statement(advance, parts)
    try:
        row = pool.fetch_row(connection, statement, parameters)
    except psycopg.errors.ForeignKeyViolation as exc:
        if exc.diag.table_name != blobs.REFERENCES:
            raise
        return CommitResult.NEW_SIGNALS  # the sweeper collected a content: it is written again
    except psycopg.errors.UniqueViolation as exc:
        if exc.diag.constraint_name in {part.overtaken for part in extra_statements}:
            # Another transaction was faster: its signals are read first.
            return CommitResult.NEW_SIGNALS
        if exc.diag.constraint_name != used_approvals.CONSTRAINT:
            raise
        raise Tampered(f"an approval was used before: {exc.diag.message_detail}") from exc
    if row == (1,) or was_written(connection, step.entry):
        failpoints.hit("written", step.kind, step.depth)
        return CommitResult.WRITTEN
    # No row was changed: a signal came since the run was read, or another worker has the run.
    now = leases.read(connection, step.claim.run)
    claim = (step.claim.epoch, step.claim.owner, step.entry.position - 1)
    ours = (now.epoch, now.owner, now.position) == claim
    return CommitResult.NEW_SIGNALS if ours else CommitResult.LOST


def was_written_after_wait(connection: Connection, step: Step) -> bool:
    """Wait for the end of an interrupted COMMIT, then say whether exactly this step is in the journal.

    That COMMIT holds the run's row. Call this in a transaction.
    """
    leases.lock(connection, step.claim.run)
    return was_written(connection, step.entry)


@cache
def _build_statement(advance: str, parts: tuple[tuple[str, str], ...]) -> str:
    tables = "".join(f", {name} AS ({sql})" for name, sql in parts)
    return f"WITH run AS ({advance}), entry AS ({APPEND}){tables} SELECT count(*) FROM run"


_WAITS = TypeAdapter(tuple[RateLimitWait, ...])


def _build_parameters(step: Step) -> dict[str, object]:
    """Return the parameters of the parts that the statement has."""
    limited = rate_limit_waits(step.state) if step.awaits is not None else ()
    parameters = {
        "status": step.status,
        "output": step.output,
        "reason": step.reason,
        "awaits": step.awaits,
        "limited": _WAITS.dump_json(limited).decode() if limited else None,
        "unheard": step.unheard,
        "due": step.due,
        "mailbox": step.signal_version,
        "signals": pool.array(step.signals),
        "run": step.claim.run,
        "epoch": step.claim.epoch,
        "owner": step.claim.owner,
        **step.entry.build_parameters(),
    }
    if step.continuation is not None:
        parameters |= continuations.build_state_parameters(
            step.continuation.state, step.continuation.lengths
        )
    if step.opened_gates or step.settled or step.closed:
        parameters |= gates.build_step_parameters(step.opened_gates, step.settled, step.closed)
    if step.blobs:
        parameters |= blobs.build_blob_parameters(step.blobs)
    if step.opened_waits or step.ended_waits:
        parameters |= waits.build_wait_parameters(step.opened_waits, step.ended_waits)
    if step.spent:
        parameters |= used_approvals.build_spend_parameters(step.spent)
    if step.ended_replies:
        parameters |= partial_replies.build_drop_parameters(step.ended_replies)
    if step.summary is not None:
        parameters |= blobs.build_summary_parameters(step.summary, step.summed_up)
    return parameters


# Upper bounds of the buckets of commit times, in seconds. Each row has those it was counted with.
BOUNDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)

# The outcome of a call, as the counts and the metrics name it.
OUTCOMES = {ToolReturned: "returned", ToolFailed: "failed", OutcomeUnknown: "in_doubt"}


class Measures:
    """The counts of one process since it started. Several runners may add to them at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._buckets = [0] * (len(BOUNDS) + 1)
        self._seconds = 0.0
        self._retries: Counter[str] = Counter()
        self._tokens: Counter[str] = Counter()
        self._model_errors = 0
        self._calls: Counter[str] = Counter()

    def add_step(self, seconds: float, events: Sequence[Event], *states: Continuation) -> None:
        """Count a committed step, the time from its first attempt to its commit, and what its events say.

        `states` are those after and before the step, which name the tools of its calls.
        """
        with self._lock:
            self._buckets[bisect_left(BOUNDS, seconds)] += 1
            self._seconds += seconds
            for event in events:
                if isinstance(event, RetryScheduled):
                    of = "model" if event.call is None else "tool"
                    self._retries[f"{of} {event.cause}"] += 1
                    self._model_errors += of == "model" and event.cause == "error"
                elif isinstance(event, ModelFailed):
                    self._model_errors += 1
                if usage := getattr(event, "usage", None):
                    for kind in ("input", "output"):
                        self._tokens[kind] += usage.get(f"{kind}_tokens", 0)
                if isinstance(event, ToolReturned | ToolFailed | OutcomeUnknown):
                    for state in states:  # the step may have made that call, or closed its frame
                        if event.frame in state.frames:
                            tool = state.call(event.frame, event.call).tool
                            self._calls[f"{tool} {OUTCOMES[type(event)]}"] += 1
                            break

    def stored(self) -> str:
        """Return the counts as JSON."""
        with self._lock:
            return json.dumps(
                {
                    "bounds": BOUNDS,
                    "buckets": self._buckets,
                    "seconds": round(self._seconds, 6),
                    "retries": self._retries,
                    "tokens": self._tokens,
                    "model_errors": self._model_errors,
                    "calls": self._calls,
                }
            )

"""Looks up the outcomes of calls for lists, without folding whole runs."""

import json
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, get_args
from uuid import UUID

from django.db.models import Q

from runtime.core.documents.blobs import hash_text
from runtime.core.run import events as e
from runtime.core.values.enums import CallState, Verdict
from runtime.core.values.ids import make_child_frame_id
from runtime.core.values.verdicts import VERDICTS
from runtime.errors import KeyMissing
from runtime.models import JournalEntry
from runtime.reads import time_limits
from runtime.reads.journal import COLUMNS, read, try_decode_entry
from runtime.reads.redaction import redact
from runtime.reads.transcript import Transcript
from runtime.store import pool
from runtime.store.tables import late_outcomes
from runtime.store.tables.journal import unpack_row
from runtime.store.tables.late_outcomes import LateOutcomeRow

MAX_ENTRIES = 1_000  # of one list; calls beyond that are not counted
MAX_NOTE_CHARACTERS = 200  # characters of a result or an error

# The events that end a call or start it again.
_OutcomeEvent = (
    e.ToolStarted
    | e.ToolReturned
    | e.ToolFailed
    | e.CallRefused
    | e.OutcomeUnknown
    | e.OutcomeArrived
    | e.WaitEnded
    | e.GateDecided
    | e.FrameClosed
)

# In Postgres, of a text that may be compressed (`"z"`), or packed: most entries have one of these events.
_PATTERN = f'"(z|{"|".join(kind.__name__ for kind in get_args(_OutcomeEvent))})"'
Attempt = tuple[str, str, int]  # frame, call and number


@dataclass(frozen=True, slots=True, kw_only=True)
class CallKey:
    """The place of one call."""

    run: UUID
    frame: str
    call: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEnd(CallKey):
    """A call that ended at the entry of this position."""

    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeLabel:
    """The outcome of a call. `label` names it, `css_class` is its colour, `note` is the shortened error or result.

    `blob` is the reference to a result that is stored by its hash.
    """

    label: str
    css_class: str
    note: str = ""
    blob: e.BlobRef | None = None


def read_outcomes(ends: Collection[CallEnd]) -> dict[CallEnd, OutcomeLabel]:
    """Return the outcome of each call from its entry, without calls whose entry is gone or cannot be read.

    The caller has checked that the runs may be read.
    """
    labels: dict[CallEnd, OutcomeLabel] = {}
    ends_by_entry: dict[tuple[UUID, int], list[CallEnd]] = {}
    for end in ends:
        ends_by_entry.setdefault((end.run, end.position), []).append(end)
    rows = JournalEntry.objects.filter(pk__in=list(ends_by_entry))
    for run, *row in rows.values_list("run_id", *COLUMNS):
        position, body, *_ = unpack_row(*row)
        entry = try_decode_entry(body)
        for event in entry.events if entry else ():
            if (
                not isinstance(event, _OutcomeEvent)
                or (outcome := _make_outcome_label(event)) is None
            ):
                continue
            for end in ends_by_entry[run, position]:
                if isinstance(event, e.FrameClosed):  # of the sub-agent to which it was delegated
                    is_of = event.frame == make_child_frame_id(end.frame, end.call)
                else:
                    is_of = (event.frame, event.call) == (end.frame, end.call)
                if is_of:
                    labels[end] = outcome
    return labels


def count_failed_calls(runs: Collection[UUID]) -> dict[UUID, int]:
    """Count the calls of each run whose last outcome is a failure. Empty if the page's time is used up."""
    if not runs or time_limits.is_used_up():
        return {}
    may_tell = Q(body__regex=_PATTERN) | Q(packed__isnull=False)
    rows = JournalEntry.objects.filter(may_tell, run_id__in=runs)
    newest = rows.order_by("-run_id", "-position").values_list("run_id", *COLUMNS)[:MAX_ENTRIES]
    last: dict[CallKey, bool] = {}
    for run, *row in reversed(newest):
        _, body, *_ = unpack_row(*row)
        entry = try_decode_entry(body)
        for event in entry.events if entry else ():
            if not isinstance(event, _OutcomeEvent) or isinstance(event, e.FrameClosed):
                continue
            if (outcome := _make_outcome_label(event)) is not None:
                key = CallKey(run=run, frame=event.frame, call=event.call or "")
                last[key] = outcome.css_class == "danger"
    return Counter(key.run for key, has_failed in last.items() if has_failed)


@dataclass(frozen=True, slots=True, kw_only=True)
class LateView:
    """One late outcome. `value` is the call's result or error, with secrets redacted.

    `by` is the person who settled that attempt, empty for none; `contradicts` says that they reported something else.
    `label` says what followed; a person's name goes before it.
    """

    frame: str
    call: str
    tool: str
    attempt: int
    at: datetime
    returned: bool
    value: Any
    label: str
    by: str = ""
    contradicts: bool = False


def list_late_outcomes_of_run(run: UUID, transcript: Transcript) -> tuple[LateView, ...]:
    """List the late outcomes of a run, oldest first. The caller has checked that the run may be read."""
    try:
        rows = late_outcomes.read_for_run(pool.use_django_connection(), run).genuine
    except KeyMissing:
        return ()  # verify_run names the key
    if not rows:
        return ()
    state = _JournalState()
    for line in read(run):
        for event in line.entry.events if line.entry else ():
            state.add(event)
    return tuple(
        _build_view(late, state, transcript) for late in rows if _attempt(late) not in state.on_time
    )


def list_late_outcomes_of_call(
    run: UUID, transcript: Transcript, *, frame: str, call: str
) -> tuple[LateView, ...]:
    """List the late outcomes of all attempts at one call; otherwise as `list_late_outcomes_of_run`."""
    return tuple(
        outcome
        for outcome in list_late_outcomes_of_run(run, transcript)
        if (outcome.frame, outcome.call) == (frame, call)
    )


class _JournalState:
    """The state of each attempt by the journal."""

    def __init__(self) -> None:
        self.last: dict[tuple[str, str], int] = {}
        self.on_time: set[Attempt] = set()
        self.arrived: set[Attempt] = set()
        self.closed: set[Attempt] = set()
        self.decided: dict[Attempt, e.GateDecided] = {}
        self.over = False

    def add(self, event: e.Event) -> None:
        match event:
            case e.ToolStarted():
                self.last[event.frame, event.call] = event.attempt
            case e.ToolReturned() | e.ToolFailed():
                self.on_time.add((event.frame, event.call, event.attempt))
            case e.OutcomeArrived():
                self.arrived.add((event.frame, event.call, event.attempt))
            case e.GateClosed():
                self.closed.add(self._now(event))
            case e.GateDecided() if VERDICTS[event.verdict].resolves_doubt:
                self.decided[self._now(event)] = event
            case e.Completed() | e.Failed() | e.Cancelled() | e.Exported():
                self.over = True
            case e.Retried() | e.Imported():
                self.over = False
            case _:
                pass

    def _now(self, event: e.GateClosed | e.GateDecided) -> Attempt:
        return event.frame, event.call, self.last.get((event.frame, event.call), 0)


def _make_outcome_label(event: _OutcomeEvent) -> OutcomeLabel | None:
    match event:
        case e.ToolStarted():
            return OutcomeLabel(label="Started", css_class="info")
        case e.ToolReturned():
            return _make_done_label(event.stored or event.result)
        case e.WaitEnded(outcome="arrived" | "timed_out"):
            return _make_done_label(event.result)
        case e.ToolFailed():
            return _make_failed_label(event.error)
        case e.CallRefused():
            return _make_failed_label(event.reason)
        case e.WaitEnded(outcome="refused"):
            return _make_failed_label(str(event.result))
        case e.OutcomeUnknown():
            return OutcomeLabel(label="In doubt", css_class="warn", note=_cut(event.error))
        case e.OutcomeArrived(outcome="returned"):
            return _make_done_label(event.stored or event.result, label="Done, late")
        case e.OutcomeArrived():
            return _make_failed_label(event.error)
        case e.GateDecided() if VERDICTS[event.verdict].carries == "result":
            is_answer = VERDICTS[event.verdict].replaces_call
            label = "Answered, not made" if is_answer else "Done, as reported"
            return _make_done_label(event.stored or event.result, label=label)
        case e.GateDecided() if VERDICTS[event.verdict].call_becomes is CallState.FAILED:
            return _make_failed_label(event.reason)
        case e.FrameClosed():
            return (
                _make_done_label(event.content)
                if event.outcome == "answered"
                else _make_failed_label(event.content)
            )
        case _:
            return None


def _make_done_label(result: Any, label: str = "Done") -> OutcomeLabel:
    blob = result if isinstance(result, e.BlobRef) else None
    return OutcomeLabel(label=label, css_class="ok", note=_cut(result), blob=blob)


def _make_failed_label(error: Any) -> OutcomeLabel:
    return OutcomeLabel(label="Failed", css_class="danger", note=_cut(error))


def _cut(value: Any) -> str:
    redacted = redact(value)
    text = redacted.preview if isinstance(redacted, e.BlobRef) else redacted
    if not isinstance(text, str):
        text = json.dumps(text, ensure_ascii=False)
    return text if len(text) <= MAX_NOTE_CHARACTERS else f"{text[:MAX_NOTE_CHARACTERS]}…"


def _attempt(late: LateOutcomeRow) -> Attempt:
    return late.frame, late.call, late.attempt


def _build_view(late: LateOutcomeRow, state: _JournalState, transcript: Transcript) -> LateView:
    call = transcript.call(late.frame, late.call)
    decided = state.decided.get(_attempt(late))
    agrees = decided is not None and _has_same_outcome(late, decided)
    if decided is None:
        is_removed = call is None and transcript.beginning is not None
        label = _describe_late_outcome(late, state, is_removed=is_removed)
    elif agrees:
        label = "had reported the same."
    elif decided.verdict is Verdict.RUN_AGAIN:
        label = "had the call run again, so it may have had its effect twice."
    elif decided.verdict is Verdict.GIVE_UP:
        label = "had given the call up, and the agent was told that it failed."
    else:
        label = "had reported something else, and the agent was told that."
    return LateView(
        frame=late.frame,
        call=late.call,
        tool=call.tool if call else late.call,
        attempt=late.attempt,
        at=late.at,
        returned=late.outcome == "returned",
        value=redact(late.result if late.outcome == "returned" else late.error),
        label=label,
        by="" if decided is None else decided.by,
        contradicts=decided is not None and not agrees,
    )


def _describe_late_outcome(late: LateOutcomeRow, state: _JournalState, *, is_removed: bool) -> str:
    if is_removed:
        return "The history of this call was removed."
    attempt = _attempt(late)
    if attempt in state.arrived:
        return "It settled the call in doubt, and the agent was told the outcome."
    if state.last.get((late.frame, late.call), 0) > late.attempt:
        return "The call had been made again before it arrived."
    if state.over or attempt in state.closed:
        return "The call was closed before it arrived, so the agent was not told."
    return "A worker applies it next, unless a person settles the call first."


def _has_same_outcome(late: LateOutcomeRow, decided: e.GateDecided) -> bool:
    """Tell whether the reviewer's report fits the outcome. A failed call fits both a repeat and giving up."""
    if late.outcome == "failed":
        return decided.verdict is not Verdict.HAPPENED
    if decided.verdict is not Verdict.HAPPENED:
        return False
    if decided.stored:
        return hash_text(json.dumps(late.result, separators=(",", ":"))) == decided.stored.digest
    # The order of keys does not count, and `true` is not 1.
    return json.dumps(late.result, sort_keys=True) == json.dumps(decided.result, sort_keys=True)

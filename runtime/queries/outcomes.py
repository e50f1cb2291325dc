"""Looks up the outcomes of calls for lists, without folding whole runs."""

import json
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, get_args
from uuid import UUID

from django.db.models import Q

from runtime.core.run import events as e
from runtime.core.values.enums import Verdict
from runtime.core.values.ids import child_frame
from runtime.models import JournalEntry
from runtime.queries import time_limits
from runtime.queries.journal import COLUMNS, decoded
from runtime.queries.redaction import redact
from runtime.store.tables.journal import unpacked

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

    `whole` is the reference to a result that is stored by its hash.
    """

    label: str
    css_class: str
    note: str = ""
    whole: e.BlobRef | None = None


def outcomes(places: Collection[CallEnd]) -> dict[CallEnd, OutcomeLabel]:
    """Return the outcome of each call from its entry, without calls whose entry is gone or cannot be read.

    The caller has checked that the runs may be read.
    """
    found: dict[CallEnd, OutcomeLabel] = {}
    wanted: dict[tuple[UUID, int], list[CallEnd]] = {}
    for place in places:
        wanted.setdefault((place.run, place.position), []).append(place)
    rows = JournalEntry.objects.filter(pk__in=list(wanted))
    for run, *row in rows.values_list("run_id", *COLUMNS):
        position, body, *_ = unpacked(*row)
        entry = decoded(body)
        for event in entry.events if entry else ():
            outcome = _outcome(event) if isinstance(event, _OutcomeEvent) else None
            for place in wanted[run, position]:
                if outcome and _is_of(event, place):
                    found[place] = outcome
    return found


def _is_of(event: e.Event, place: CallEnd) -> bool:
    """Tell whether the event belongs to this call. A delegated call ends with the frame of its sub-agent."""
    if isinstance(event, e.FrameClosed):
        return event.frame == child_frame(place.frame, place.call)
    return isinstance(event, _OutcomeEvent) and (event.frame, event.call) == (
        place.frame,
        place.call,
    )


def failed_calls(runs: Collection[UUID]) -> dict[UUID, int]:
    """Count the calls of each run whose last outcome is a failure. Empty if the page's time is used up."""
    if not runs or time_limits.is_used_up():
        return {}
    last: dict[CallKey, bool] = {}
    for run, event in _outcome_events(runs):
        outcome = _outcome(event)
        if outcome and not isinstance(event, e.FrameClosed):
            place = CallKey(run=run, frame=event.frame, call=event.call or "")
            last[place] = outcome.css_class == "danger"
    return Counter(place.run for place, has_failed in last.items() if has_failed)


def _outcome_events(runs: Collection[UUID]) -> Iterator[tuple[UUID, _OutcomeEvent]]:
    may_tell = Q(body__regex=_PATTERN) | Q(packed__isnull=False)
    rows = JournalEntry.objects.filter(may_tell, run_id__in=runs)
    newest = rows.order_by("-run_id", "-position").values_list("run_id", *COLUMNS)[:MAX_ENTRIES]
    for run, *row in reversed(newest):
        _, body, *_ = unpacked(*row)
        entry = decoded(body)
        for event in entry.events if entry else ():
            if isinstance(event, _OutcomeEvent):
                yield run, event


def _outcome(event: _OutcomeEvent) -> OutcomeLabel | None:
    match event:
        case e.ToolStarted():
            return OutcomeLabel(label="Started", css_class="info")
        case e.ToolReturned():
            return _done(event.stored or event.result)
        case e.WaitEnded(outcome="arrived" | "timed_out"):
            return _done(event.result)
        case e.ToolFailed():
            return _failed(event.error)
        case e.CallRefused():
            return _failed(event.reason)
        case e.WaitEnded(outcome="refused"):
            return _failed(str(event.result))
        case e.OutcomeUnknown():
            return OutcomeLabel(label="In doubt", css_class="warn", note=_cut(event.error))
        case e.OutcomeArrived(outcome="returned"):
            return _done(event.stored or event.result, label="Done, late")
        case e.OutcomeArrived():
            return _failed(event.error)
        case e.GateDecided(verdict=Verdict.HAPPENED):
            return _done(event.stored or event.result, label="Done, as reported")
        case e.GateDecided(verdict=Verdict.ANSWER):
            return _done(event.stored or event.result, label="Answered, not made")
        case e.GateDecided(verdict=Verdict.GIVE_UP):
            return _failed(event.reason)
        case e.FrameClosed():
            return _done(event.content) if event.outcome == "answered" else _failed(event.content)
        case _:
            return None


def _done(result: Any, label: str = "Done") -> OutcomeLabel:
    whole = result if isinstance(result, e.BlobRef) else None
    return OutcomeLabel(label=label, css_class="ok", note=_cut(result), whole=whole)


def _failed(error: Any) -> OutcomeLabel:
    return OutcomeLabel(label="Failed", css_class="danger", note=_cut(error))


def _cut(value: Any) -> str:
    shown = redact(value)
    text = shown.preview if isinstance(shown, e.BlobRef) else shown
    if not isinstance(text, str):
        text = json.dumps(text, ensure_ascii=False)
    return text if len(text) <= MAX_NOTE_CHARACTERS else f"{text[:MAX_NOTE_CHARACTERS]}…"

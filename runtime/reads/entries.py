"""Reads the entries of a run as they are listed, and the states that they make."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any
from uuid import UUID

from runtime.core.documents import codec, continuations
from runtime.core.run import events as e
from runtime.core.run.continuation import Continuation, Pending
from runtime.core.run.reducer import make_initial_state
from runtime.core.values.enums import CallState
from runtime.core.values.errors import CoreError
from runtime.core.values.verdicts import GATES, select_verdict_rule
from runtime.models import JournalEntry, Run, StoredContinuation
from runtime.reads.journal import (
    JournalLine,
    fold_last_state,
    read,
    read_remaining,
    read_removed_entries,
    read_stored_entries,
    read_stored_or_archived,
    try_decode_entry,
)
from runtime.reads.labels import format_agent_title
from runtime.reads.redaction import redact
from runtime.reads.run_rows import Page, RunDetail, as_json
from runtime.reads.trace.fold import fold
from runtime.reads.transcript import Transcript, build_transcript

# The agents that lead to a frame or, with the tool, to a call, by the ids of both.
Paths = Mapping[tuple[str, str], tuple[str, ...]]

EVENTS: Mapping[str, str] = {
    "RunStarted": "run started",
    "FrameOpened": "agent started",
    "ModelReplied": "model replied",
    "Compacted": "earlier messages summarised",
    "MemorySummarised": "memory of earlier runs summed up",
    "ModelFailed": "model call failed",
    "CallAdmitted": "call admitted",
    "CallPreviewed": "call previewed",
    "CallRefused": "call refused",
    "GateOpened": "waits for a person",
    "GateDecided": "a person decided",
    "GateClosed": "closed without a decision",
    "GateExtended": "deadline extended",
    "ToolStarted": "call started",
    "ToolReturned": "call returned",
    "ToolFailed": "call failed",
    "OutcomeUnknown": "outcome lost",
    "OutcomeArrived": "late outcome arrived",
    "RetryScheduled": "another attempt scheduled",
    "WaitStarted": "wait began",
    "WaitEnded": "wait ended",
    "BudgetExceeded": "budget used up",
    "BudgetGranted": "more budget granted",
    "FrameClosed": "agent ended",
    "Completed": "run finished",
    "Failed": "run failed",
    "Retried": "failed run tried again",
    "Cancelling": "cancellation began",
    "Cancelled": "run cancelled",
    "AgentChanged": "continues under another version",
    "Forked": "forked from another run",
    "Exported": "run exported",
    "Imported": "run imported",
    "Paused": "run paused",
    "Resumed": "run resumed",
    "MessageReceived": "message received",
    "QuestionAsked": "inquiry received",
    "QuestionAnswered": "inquiry answered",
    "QuestionFailed": "inquiry not answered",
    "AnswerDropped": "answer not kept",
}

# Fields that every entry changes, or that have lines of their own.
_LEFT_OUT = frozenset({"schema", "run", "position", "head", "frames", "calls", "agents"})


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalItem:
    """One entry. `at` and `events` are as written; an entry that is not JSON has neither."""

    position: int
    at: str | None
    events: list[dict[str, Any]]


def read_journal_page(
    run: UUID, *, limit: int = 50, cursor: int | None = None, provider_errors: bool = False
) -> Page[JournalItem]:
    """Read the run's entries in order. The caller has checked that the actor may read it.

    `provider_errors` includes the error texts of providers: they may quote what only admins may read.
    """
    rows = JournalEntry.objects.filter(run_id=run).order_by("position")
    if cursor is not None:
        rows = rows.filter(position__gt=cursor)
    readable = read_stored_or_archived(run, rows[: limit + 1], after=cursor or 0)
    entries = list(islice(readable, limit + 1))
    if entries and entries[0][0] != (cursor or 0) + 1:
        removed_rows = list(islice(read_removed_entries(run, after=cursor or 0), limit + 1))
        entries = (removed_rows + entries)[: limit + 1]
    items = []
    for position, body, _ in entries[:limit]:
        document = as_json(body)
        entry = document if isinstance(document, dict) else {}
        if (read := try_decode_entry(body)) is not None:
            redacted = redact(codec.build_event_documents(read.events))  # also of a compressed one
            entry = {**entry, "at": read.at.isoformat(), "events": redacted}
        at, events = entry.get("at"), entry.get("events")
        if not isinstance(events, list):
            events = []
        if not provider_errors:
            events = [
                {name: value for name, value in event.items() if name != "said"}
                if isinstance(event, dict)
                else event
                for event in events
            ]
        item = JournalItem(position=position, at=at if isinstance(at, str) else None, events=events)
        items.append(item)
    following = str(items[-1].position) if len(entries) > limit else None
    return Page(items=tuple(items), next=following)


def read_run_state(run: UUID) -> Any | None:
    """Return the state of the run: the live continuation, or the initial one, with later entries folded in.

    Return None if the run has ended. Unreadable data is returned as stored. The caller has checked access.
    """
    if not Run.objects.filter(id=run, ended_at=None).exists():
        return None
    body = StoredContinuation.objects.filter(run_id=run).values_list("body", flat=True).first()
    try:
        now = make_initial_state(run)
        if body is not None:
            rows = JournalEntry.objects.filter(run_id=run)
            texts = {position: text for position, text, _ in read_stored_entries(rows)}
            now = continuations.decode_continuation(body, texts.__getitem__)
    except CoreError:
        return None if body is None else as_json(body)
    later = read(run, after=now.position)
    now = fold_last_state(now, later)
    if later and now.position != later[-1].position:
        return None if body is None else as_json(body)
    return redact(continuations.build_document(now))


def describe_entry(line: JournalLine, paths: Paths) -> tuple[str, ...]:
    """Describe each event of an entry."""
    if line.entry is None:
        return ("cannot be read",)
    return tuple(describe_event(event, paths) for event in line.entry.events)


def describe_event(event: e.Event, paths: Paths) -> str:
    """Describe an event, with its agents and tool: their ids, if the journal does not name them."""
    frame, call = (getattr(event, name, None) or "" for name in ("frame", "call"))
    if isinstance(event, e.FrameOpened):
        call = ""  # that of the parent
    names = map(format_agent_title, paths.get((frame, call), ()))
    about = " › ".join(names) or " › ".join(filter(None, (frame, call)))
    match event:
        case e.GateOpened():
            words = GATES[event.kind].open
        case e.GateDecided():
            words = f"{select_verdict_rule(None, event.verdict).past} {redact(event.by)}".rstrip()
        case e.ModelReplied() if event.given_by:
            words = f"reply given by {redact(event.given_by)} in the place of the model"
        case e.FrameClosed():
            words = f"agent {event.outcome}"
        case e.Paused() | e.Resumed() | e.MessageReceived() | e.Retried() | e.GateExtended():
            words = f"{EVENTS[event.type]} by {redact(event.by)}".replace("received by", "from")
        case _:
            words = EVENTS[event.type]
    return f"{words}: {about}" if about else words


def collect_paths(transcript: Transcript) -> Paths:
    """Return the agents that lead to each frame, and to each call, which ends with its tool."""
    paths: dict[tuple[str, str], tuple[str, ...]] = {}
    for frame in transcript.frames():  # a parent before its children
        above = paths.get((frame.parent or "", ""), ()) if frame.parent is not None else ()
        paths[frame.id, ""] = (*above, frame.agent)
        for call in frame.calls:
            paths[frame.id, call.id] = (*above, frame.agent, call.tool)
    return paths


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedEntry:
    """An entry in the archive: its time, its events in words, and the events with secrets redacted."""

    position: int
    at: datetime | None
    texts: tuple[str, ...]
    events: list[dict[str, Any]]


def list_removed_entries(run: RunDetail, *, after: int, limit: int) -> tuple[RemovedEntry, ...]:
    """Return the archived ones of the `limit` removed entries after position `after`. For admins.

    Raises Tampered, KeyMissing or ObjectStoreDown.
    """
    until = min(after + limit + 1, run.history_begins)
    if until <= after + 1:
        return ()
    entries = []
    for item in read_journal_page(run.id, limit=limit, cursor=after, provider_errors=True).items:
        if item.position < until:
            names = [str(event.get("type", "")) for event in item.events]
            entry = RemovedEntry(
                position=item.position,
                at=None if item.at is None else datetime.fromisoformat(item.at),
                texts=tuple(EVENTS.get(name, name) for name in names),
                events=item.events,
            )
            entries.append(entry)
    return tuple(entries)


# The state after an entry: it is computed with the engine's core, but nothing is verified, and no run resumes from it


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChange:
    """One change. `place` is empty for the run, else a frame or `frame/call`, and `name` its agent or tool.

    `before` and `after` are JSON with secrets redacted; messages are only counted.
    """

    place: str
    name: str
    part: str
    before: Any
    after: Any


def compare_states(before: Continuation, after: Continuation) -> tuple[StateChange, ...]:
    """Return all differences: of the run, then of each frame with its calls."""
    was, now = _build_document(before), _build_document(after)
    changes = list(_compare_item("", "", was, now))
    for name in {**was["frames"], **now["frames"]}:
        earlier, later = was["frames"].get(name), now["frames"].get(name)
        changes += _compare_item(name, (later or earlier)["agent"], earlier, later)
        calls, later_calls = _collect_calls(earlier), _collect_calls(later)
        for call in {**calls, **later_calls} if later else ():
            tool = (later_calls.get(call) or calls[call])["tool"]
            place = f"{name}/{call}"
            changes += _compare_item(place, tool, calls.get(call), later_calls.get(call))
    return tuple(changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameAt:
    """An open frame. `calls` are the calls of its turn, each with its state."""

    id: str
    agent: str
    state: str
    turn: int
    calls: tuple[tuple[str, CallState], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StateAt:
    """The state after an entry, whose `events` are types and whose `texts` are words.

    `document` is the continuation with secrets redacted; None if entry `unreadable` cannot be folded.
    """

    position: int
    at: datetime | None
    events: tuple[str, ...]
    texts: tuple[str, ...]
    pending: tuple[Pending, ...]
    frames: tuple[FrameAt, ...]
    document: Any
    unreadable: int | None
    moves: tuple[StateChange, ...]

    @property
    def previous(self) -> int:
        """The entry before this one."""
        return self.position - 1

    @property
    def next(self) -> int:
        """The entry after this one."""
        return self.position + 1


def read_state_after(run: UUID, position: int) -> StateAt | None:
    """Return the state after entry `position`; None if there is no such entry. The caller has checked access."""
    journal = read_remaining(run, until=position)
    lines = journal.lines
    if not lines or lines[-1].position != position:
        return None
    last = lines[-1].entry
    before = fold_last_state(journal.start, lines[:-1])
    reached = fold_last_state(before, lines[-1:])
    now = reached if reached.position == position else None
    return StateAt(
        position=position,
        at=last.at if last else None,
        events=tuple(event.type for event in last.events) if last else (),
        texts=describe_entry(lines[-1], collect_paths(build_transcript(fold(journal)))),
        pending=now.pending if now else (),
        frames=tuple(
            FrameAt(
                id=frame.id,
                agent=frame.agent,
                state=frame.state,
                turn=frame.turn,
                calls=tuple((call.tool, call.state) for call in frame.list_turn_calls()),
            )
            for frame in (now.frames.values() if now else ())
        ),
        document=redact(continuations.build_document(now)) if now else None,
        unreadable=None if now else reached.position + 1,
        moves=compare_states(before, now) if now else (),
    )


def _build_document(now: Continuation) -> dict[str, Any]:
    document: dict[str, Any] = redact(continuations.build_document(now))
    return document


def _collect_calls(frame: dict[str, Any] | None) -> dict[str, dict[str, Any]]:
    return {call["id"]: call for call in frame["calls"]} if frame else {}


def _compare_item(
    place: str, name: str, was: dict[str, Any] | None, now: dict[str, Any] | None
) -> Iterator[StateChange]:
    """Yield one change of state for an added or removed item, else one change for each part that differs."""
    if was is None or now is None:
        before, after = (was or {}).get("state"), (now or {}).get("state")
        yield StateChange(place=place, name=name, part="state", before=before, after=after)
        return
    for part in now:
        before, after = _make_comparable(part, was.get(part)), _make_comparable(part, now[part])
        if part not in _LEFT_OUT and before != after:
            yield StateChange(place=place, name=name, part=part, before=before, after=after)


def _make_comparable(part: str, value: Any) -> Any:
    if part == "messages":
        return len(value)
    if part == "pending":
        return [" → ".join(gate["path"]) for gate in value]
    return value

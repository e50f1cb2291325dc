"""Previews a fork from an entry: whether it is possible, and which calls it repeats, reopens or inherits."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain, pairwise
from typing import Any
from uuid import UUID

from runtime.core.run import forks
from runtime.core.run.continuation import Continuation
from runtime.core.run.events import BlobRef, Event, ForkChange, ToolStarted
from runtime.core.values.enums import CallState
from runtime.keyring import sealing
from runtime.ports import wiring
from runtime.reads.entries import collect_paths, describe_entry
from runtime.reads.journal import Beginning, JournalLine, fold_states, read_remaining
from runtime.reads.redaction import redact
from runtime.reads.trace.calls import CallRecord
from runtime.reads.trace.fold import fold
from runtime.reads.transcript import build_transcript
from runtime.store.tables.journal import ForkPoint, fork_points


@dataclass(frozen=True, slots=True, kw_only=True)
class ReopenedCall:
    """A call that was open at the entry: the fork checks it again, or asks a person because it is `in_doubt`.

    `waited` says that the call waited for a time or an event.
    """

    agent: str
    tool: str
    in_doubt: bool
    waited: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeableValue:
    """A value that a person may change in the fork. `by` is the writer of a message, else empty; `value` is JSON.

    That of a reply has the `text` and `calls` of the one that the run recorded next, empty without one. `stored` says
    that a result is too large to be shown, and only its beginning is known. `asks_again` says that the change is made
    before a reply that the entry records.
    """

    change: ForkChange
    agent: str
    tool: str
    by: str
    value: Any
    stored: bool = False
    asks_again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkView:
    """A fork from `position`; `texts` say what that entry records. With `asks_again` it starts before a reply in it.

    `previous` and `next` are the nearest entries that can be forked, 0 for none, with the first thing they record.

    `repeated` are calls with side effects that the original started after the entry; `inherited` are earlier ones,
    whose results the fork keeps. `reopened` are the open calls. `changes` are the values that the forker may change.
    `before_reply` is the nearest entry before a reply of a model that this one records, 0 for none: there the reply can
    be changed. `removed` says since when the entry is gone, None for one that the run still has. From the first of the
    `unreadable` entries on no call is known.
    """

    position: int
    at: datetime | None
    texts: tuple[str, ...]
    possible: bool
    asks_again: bool
    previous: int
    previous_text: str
    next: int
    next_text: str
    repeated: tuple[CallRecord, ...]
    inherited: tuple[CallRecord, ...]
    reopened: tuple[ReopenedCall, ...]
    changes: tuple[ChangeableValue, ...]
    before_reply: int
    removed: Beginning | None = None
    unreadable: tuple[int, ...] = ()


def preview(run: UUID, position: int) -> ForkView | None:
    """Preview a fork; return None if there is no such entry. The caller has checked that the run may be read."""
    journal = read_remaining(run)
    lines, line = journal.lines, journal.find_line(position)
    is_removed = 1 <= position <= journal.removed
    if line is None and not is_removed:
        return None
    reached = [journal.start, *fold_states(journal.start, lines)]
    points = _collect_points(reached, lines)
    positions = [number for number, of_entry in points.items() if of_entry]
    here = points.get(position, ())
    after = chain(here[0].later if here else (), _list_events_after(lines, position))
    later = {(event.frame, event.call) for event in after if isinstance(event, ToolStarted)}
    transcript = build_transcript(fold(journal))
    calls = [call for call in transcript.calls() if call.has_side_effects]
    paths = collect_paths(transcript)
    texts = {line.position: describe_entry(line, paths) for line in lines}
    entry = line.entry if line else None
    previous = max((other for other in positions if other < position), default=0)
    following = min((other for other in positions if other > position), default=0)
    return ForkView(
        position=position,
        at=entry.at if entry else None,
        texts=texts.get(position, ()),
        possible=bool(here),
        asks_again=bool(here and here[0].later),
        previous=previous,
        previous_text="".join(texts.get(previous, ())[:1]),
        next=following,
        next_text="".join(texts.get(following, ())[:1]),
        repeated=tuple(call for call in calls if (call.frame, call.id) in later),
        inherited=tuple(call for call in calls if (call.frame, call.id) not in later),
        reopened=_list_reopened_calls(here[0].state) if here else (),
        changes=_list_changeable_values(here, lines),
        before_reply=_find_entry_before_reply(points, reached, line) if line else 0,
        removed=journal.beginning if is_removed else None,
        unreadable=transcript.unreadable,
    )


def find_last_quiescent(run: UUID) -> int:
    """Return the newest entry that can be forked, 0 for none. The caller has checked access."""
    journal = read_remaining(run)
    points = _collect_points(
        [journal.start, *fold_states(journal.start, journal.lines)], journal.lines
    )
    return max((number for number, of_entry in points.items() if of_entry), default=0)


def _collect_points(
    reached: list[Continuation], lines: tuple[JournalLine, ...]
) -> dict[int, tuple[ForkPoint, ...]]:
    """Return where a fork may start, by entry. `reached` are the states before the first line and after each."""
    return {
        after.position: tuple(fork_points(before, after, line.entry))
        for (before, after), line in zip(pairwise(reached), lines, strict=False)
        if line.entry is not None
    }


def _list_events_after(lines: tuple[JournalLine, ...], position: int) -> Iterator[Event]:
    """Yield the events of the entries after this one."""
    later = (line.entry for line in lines if line.position > position)
    return (event for entry in later if entry is not None for event in entry.events)


def _list_reopened_calls(then: Continuation) -> tuple[ReopenedCall, ...]:
    after = forks.without_permissions(then)
    return tuple(
        ReopenedCall(
            agent=frame.agent,
            tool=redact(call.tool),
            in_doubt=call.state is CallState.UNKNOWN,
            waited=then.call(frame.id, call.id).state is CallState.WAITING,
        )
        for frame in after.frames.values()
        for call in frame.list_turn_calls()
        if call.state in (CallState.PROPOSED, CallState.UNKNOWN)
    )


def _find_entry_before_reply(
    points: dict[int, tuple[ForkPoint, ...]], reached: list[Continuation], line: JournalLine
) -> int:
    """Return the last entry that can be forked before the first reply in this one, 0 for none or for itself."""
    events = line.entry.events if line.entry else ()
    frame = next((frame for _, frame in forks.list_replies(events)), "")
    before = next((now for now in reached if now.position == line.position - 1), None)
    if before is None or frame not in before.frames:
        return 0
    turn = before.frame(frame).turn
    nearest = 0
    for number, of_entry in points.items():
        for point in of_entry:
            then = point.state.frames.get(frame)
            calls_model = (
                then is not None and then.turn == turn and then.state in forks.BEFORE_REPLY
            )
            if calls_model and nearest < number <= line.position:
                nearest = number
    return nearest if nearest < line.position else 0


def _list_changeable_values(
    points: Iterable[ForkPoint], lines: tuple[JournalLine, ...]
) -> tuple[ChangeableValue, ...]:
    """Return the values that may be changed at these points, each at the first one where it can."""
    changes: dict[ForkChange, ChangeableValue] = {}
    for point in points:
        now = forks.without_permissions(point.state)
        for change, value in forks.list_changeable(now):
            if change in changes:
                continue
            events = chain(point.later, _list_events_after(lines, now.position))
            changeable = _build_changeable_value(now, change, value, events)
            if changeable is not None:
                changes[change] = replace(changeable, asks_again=bool(point.later))
    return tuple(changes.values())


def _build_changeable_value(
    now: Continuation, change: ForkChange, value: Any, events: Iterable[Event]
) -> ChangeableValue | None:
    """Return the value as the page shows it, for a reply the one that these events recorded; None if it must stay."""
    if change.kind == "message":
        by = now.unheard[change.number - 1].by
        return ChangeableValue(change=change, agent=now.agent, tool="", by=by, value=value)
    frame = now.frame(change.frame)
    if change.kind == "reply":
        if wiring.resolve_catalogue().is_working_on_items(frame.agent):
            return None
        reply = forks.find_next_reply(events, change.frame)
        text, proposals = (redact(reply.text), reply.calls) if reply else ("", ())
        calls = [
            {
                "tool": redact(proposal.tool),
                "arguments": sealing.redact_args(proposal.tool, proposal.args),
            }
            for proposal in proposals
        ]
        document = {"text": text, "calls": calls}
        return ChangeableValue(change=change, agent=frame.agent, tool="", by="", value=document)
    call = frame.find(change.call)
    if change.kind == "arguments":
        schemas = wiring.resolve_catalogue().find_tool_schemas(frame.agent, call.tool)
        if schemas is None or sealing.list_held_args(call.tool, value):
            return None  # those of a delegation, or their credential waits
        redacted = sealing.redact_args(call.tool, value)
    else:
        redacted = redact(value)
    return ChangeableValue(
        change=change,
        agent=frame.agent,
        tool=redact(call.tool),
        by="",
        value=redacted,
        stored=isinstance(value, BlobRef),
    )

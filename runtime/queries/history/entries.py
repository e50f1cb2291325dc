"""Reads the entries of a run as they are listed, and the state that they make."""

from dataclasses import dataclass
from itertools import islice
from typing import Any
from uuid import UUID

from runtime.core.documents import codec, continuations
from runtime.core.run.reducer import initial
from runtime.core.values.errors import CoreError
from runtime.models import JournalEntry, Run, StoredContinuation
from runtime.queries.journal import archived, decoded, latest, read, removed, stored
from runtime.queries.redaction import redact
from runtime.queries.runs import Page, as_json


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalItem:
    """One entry. `at` and `events` are as written; an entry that is not JSON has neither."""

    position: int
    at: str | None
    events: list[dict[str, Any]]


def journal_page(
    run: UUID, *, limit: int = 50, cursor: int | None = None, whole: bool = False
) -> Page[JournalItem]:
    """Read the run's entries in order. The caller has checked that the actor may read it, `whole` as an admin."""
    rows = JournalEntry.objects.filter(run_id=run).order_by("position")
    if cursor is not None:
        rows = rows.filter(position__gt=cursor)
    found = list(stored(rows[: limit + 1]))
    if not found:
        found = list(archived(run, after=cursor or 0))[: limit + 1]
    if found and found[0][0] != (cursor or 0) + 1:
        gone = list(islice(removed(run, after=cursor or 0), limit + 1))
        found = (gone + found)[: limit + 1]
    items = tuple(_item(position, body, whole) for position, body, _ in found[:limit])
    return Page(items=items, next=str(items[-1].position) if len(found) > limit else None)


def continuation(run: UUID) -> Any | None:
    """Return the state of the run: the live continuation, or the initial one, with later entries folded in.

    Return None if the run has ended. Unreadable data is returned as stored. The caller has checked access.
    """
    if not Run.objects.filter(id=run, ended_at=None).exists():
        return None
    body = StoredContinuation.objects.filter(run_id=run).values_list("body", flat=True).first()
    try:
        now = (
            initial(run) if body is None else continuations.decode_continuation(body, _text_of(run))
        )
    except CoreError:
        return None if body is None else as_json(body)
    later = read(run, after=now.position)
    now = latest(now, later)
    if later and now.position != later[-1].position:
        return None if body is None else as_json(body)
    return redact(continuations.document_of(now))


def _text_of(run: UUID) -> continuations.TextOf:
    """Look up the text of an entry."""
    rows = JournalEntry.objects.filter(run_id=run)
    return {position: body for position, body, _ in stored(rows)}.__getitem__


def _item(position: int, body: str, whole: bool) -> JournalItem:
    """Read an entry. Without `whole`, leave out providers' error texts: they may quote what only admins may read."""
    entry = as_json(body)
    if not isinstance(entry, dict):
        return JournalItem(position=position, at=None, events=[])
    if (read := decoded(body)) is not None:
        told = redact(codec.documents_of(read.events))
        entry = {**entry, "at": read.at.isoformat(), "events": told}  # also of a compressed one
    events = entry.get("events")
    return JournalItem(
        position=position,
        at=entry.get("at") if isinstance(entry.get("at"), str) else None,
        events=[_event(event, whole) for event in events] if isinstance(events, list) else [],
    )


def _event(event: Any, whole: bool) -> Any:
    if whole or not isinstance(event, dict):
        return event
    return {name: value for name, value in event.items() if name != "said"}

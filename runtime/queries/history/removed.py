"""Reads the removed entries of a shortened run from the archive, for the page that lists them."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from runtime.queries.history.entries import JournalItem, journal_page
from runtime.queries.history.entry_texts import EVENTS
from runtime.queries.runs import RunDetail


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedEntry:
    """An entry in the archive: its time, its events in words, and the events with secrets redacted."""

    position: int
    at: datetime | None
    texts: tuple[str, ...]
    events: list[dict[str, Any]]


def removed_entries(run: RunDetail, *, after: int, limit: int) -> tuple[RemovedEntry, ...]:
    """Return the archived ones of the `limit` removed entries after position `after`. For admins.

    Raises Tampered, KeyMissing or ObjectStoreDown.
    """
    until = min(after + limit + 1, run.history_begins)
    if until <= after + 1:
        return ()
    page = journal_page(run.id, limit=limit, cursor=after, whole=True)
    return tuple(_entry(item) for item in page.items if item.position < until)


def _entry(item: JournalItem) -> RemovedEntry:
    names = [str(event.get("type", "")) for event in item.events]
    return RemovedEntry(
        position=item.position,
        at=None if item.at is None else datetime.fromisoformat(item.at),
        texts=tuple(EVENTS.get(name, name) for name in names),
        events=item.events,
    )

"""Writes the history of decisions as CSV or JSON lines, one page of rows at a time.

Each page is a statement of its own, so that a slow reader holds no transaction open in Postgres and the memory does not
grow. Rows decided meanwhile are newer than the first page, so they are not in the file.
"""

import csv
import json
from collections.abc import Generator, Iterator
from enum import StrEnum
from threading import BoundedSemaphore
from typing import Any

from approvals.accounts import log
from approvals.permissions import principals
from approvals.queries import history
from approvals.queries.decision_filters import DecisionFilter
from approvals.queries.history import Decision
from runtime.ports.access import Actor

ROWS = history.MAX_LIMIT  # of one page, which are in memory at once
RUNNING = 2  # exports of a process at once: a slow reader holds one of its threads

_room = BoundedSemaphore(RUNNING)


class Format(StrEnum):
    """A format of the file."""

    CSV = "csv"
    JSONL = "jsonl"


CONTENT_TYPES = {
    Format.CSV: "text/csv; charset=utf-8",
    Format.JSONL: "application/x-ndjson; charset=utf-8",
}
COLUMNS = (
    "decided_at",
    "verdict",
    "decided_by",
    "reason",
    "channel",
    "seconds_to_decide",
    "outcome",
    "kind",
    "tool",
    "path",
    "risk",
    "sentence",
    "requester",
    "created_at",
    "request",
    "run",
    "tampered",
)


class _Line:
    """The file to which csv writes: it returns the line."""

    def write(self, text: str) -> str:
        return text


class Export:
    """The lines of one file. Close it, or read it to the end, to make room for the next export."""

    def __init__(self, first: str, rest: Generator[str]) -> None:
        self._first, self._rest = first, rest

    def __iter__(self) -> Iterator[str]:
        """Return the lines, several in each text."""
        yield self._first
        yield from self._rest

    def close(self) -> None:
        """Make room for the next export."""
        self._rest.close()


def start(actor: Actor, chosen: DecisionFilter, format: Format) -> Export | None:
    """Return the file, and log who exports what. None if RUNNING exports are under way."""
    if not _room.acquire(blocking=False):
        return None
    lines = _in_room(actor, chosen, format)
    first = next(lines, "")  # from here on, the end of `lines` makes room
    given = {**chosen.given, **({"words": chosen.words} if chosen.words else {})}
    log.record(actor.person, f"exports the history of decisions as {format}: {json.dumps(given)}")
    return Export(first, lines)


def _in_room(actor: Actor, chosen: DecisionFilter, format: Format) -> Generator[str]:
    try:
        yield from _lines(actor, chosen, format)
    finally:
        _room.release()


def values(item: Decision) -> dict[str, Any]:
    """Return the columns of one decision."""
    return {
        "decided_at": item.decided_at.isoformat(),
        "verdict": item.verdict,
        "decided_by": item.decided_by,
        "reason": item.reason,
        "channel": item.channel,
        "seconds_to_decide": item.seconds_to_decide,
        "outcome": item.outcome,
        "kind": item.kind,
        "tool": item.tool,
        "path": list(item.path),
        "risk": item.risk,
        "sentence": item.sentence,
        "requester": item.requester,
        "created_at": item.created_at.isoformat(),
        "request": str(item.id),
        "run": str(item.run),
        "tampered": item.tampered,
    }


def _lines(actor: Actor, chosen: DecisionFilter, format: Format) -> Iterator[str]:
    if format is Format.CSV:
        yield _row(COLUMNS)
    cursor: str | None = None
    while True:
        # The rights are read for each page: a person who loses them while it runs gets no further rows.
        principal = principals.principal_of(actor)
        page = history.page(principal, chosen, limit=ROWS, cursor=cursor)
        rows = [values(item) for item in page.items]
        if rows and format is Format.CSV:
            yield "".join(_row(map(_cell, row.values())) for row in rows)
        elif rows:
            yield "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
        cursor = page.next
        if cursor is None:
            return


def _row(cells: Any) -> str:
    return str(csv.writer(_Line()).writerow(cells))


def _cell(value: Any) -> Any:
    """Return a cell that no spreadsheet reads as a formula, even after blanks."""
    if isinstance(value, list):
        value = " › ".join(map(str, value))
    if isinstance(value, str) and value.lstrip().startswith(
        ("=", "+", "-", "@", "＝", "＋", "－", "＠")
    ):
        return f"'{value}"
    return "'" + value if isinstance(value, str) and value[:1] in ("\t", "\r", "\n") else value

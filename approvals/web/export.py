"""Writes the history of decisions as CSV or JSON lines, one page of rows at a time.

Rows decided meanwhile are newer than the first page, so they are not in the file.
"""

import json
from collections.abc import Iterator
from enum import StrEnum
from typing import Any

from approvals.reads import history
from approvals.reads.filters import DecisionFilter
from approvals.reads.history import PastDecision
from approvals.rights import principals
from approvals.signed import audit
from runtime.ports.access import Actor
from runtime.web import downloads
from runtime.web.downloads import Download, row

ROWS = history.MAX_LIMIT  # of one page, which are in memory at once


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
    "decided_for",
    "voters",
    "reason",
    "channel",
    "seconds_to_decide",
    "outcome",
    "kind",
    "tool",
    "path",
    "risk",
    "sentence",
    "edits",
    "requester",
    "created_at",
    "request",
    "run",
    "tampered",
)


def start(actor: Actor, criteria: DecisionFilter, format: Format) -> Download | None:
    """Return the file, and log who exports what. None if too many are under way."""
    download = downloads.start(_lines(actor, criteria, format))
    if download is not None:
        parameters = {**criteria.texts, **({"words": criteria.words} if criteria.words else {})}
        audit.log_change(
            actor.person, f"exports the history of decisions as {format}: {json.dumps(parameters)}"
        )
    return download


def values(item: PastDecision) -> dict[str, Any]:
    """Return the columns of one decision."""
    return {
        "decided_at": item.decided_at.isoformat(),
        "verdict": item.verdict,
        "decided_by": item.decided_by,
        "decided_for": item.decided_for,
        "voters": [
            {
                "person": voter.person,
                "voted_for": voter.absent,
                "at": voter.at.isoformat(),
                "reason": voter.reason,
            }
            for voter in item.voters
        ],
        "reason": item.reason,
        "channel": item.channel,
        "seconds_to_decide": item.seconds_to_decide,
        "outcome": item.outcome,
        "kind": item.kind,
        "tool": item.tool,
        "path": list(item.path),
        "risk": item.risk,
        "sentence": item.sentence,
        "edits": [
            {"path": edit.path, "before": edit.before, "after": edit.after} for edit in item.edits
        ],
        "requester": item.requester,
        "created_at": item.created_at.isoformat(),
        "request": str(item.id),
        "run": str(item.run),
        "tampered": item.tampered,
    }


def _cells(item: PastDecision) -> Iterator[Any]:
    """Return the columns of one decision as text that a spreadsheet shows."""
    texts = {
        "voters": ", ".join(
            f"{voter.person} for {voter.absent}" if voter.absent else voter.person
            for voter in item.voters
        ),
        "edits": "\n".join(
            f"{edit.path}: {_brief(edit.before)} → {_brief(edit.after)}" for edit in item.edits
        ),
    }
    for name, value in values(item).items():
        yield texts.get(name, value)


def _brief(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _lines(actor: Actor, criteria: DecisionFilter, format: Format) -> Iterator[str]:
    if format is Format.CSV:
        yield row(COLUMNS)
    cursor: str | None = None
    while True:
        # The rights are read for each page: a person who loses them while it runs gets no further rows.
        principal = principals.principal_of(actor)
        page = history.page(principal, criteria, limit=ROWS, cursor=cursor)
        if page.items and format is Format.CSV:
            yield "".join(row(_cells(item)) for item in page.items)
        elif page.items:
            yield "".join(
                f"{json.dumps(values(item), ensure_ascii=False)}\n" for item in page.items
            )
        cursor = page.next
        if cursor is None:
            return

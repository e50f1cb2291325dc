"""Reads what people do beside deciding: who claims a request, to whom it was handed, who has it open, and comments."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.db import connection

from approvals.models import Comment, Handover
from approvals.signed import rows

OPEN_FOR: Final = timedelta(seconds=45)  # after an open page last said so
MAX_VIEWERS: Final = 5

_MARKS = """
    SELECT r.id, c.person, c.at, c.until, h.person, h.by, h.note, h.at, h.signature,
        h.key_id,
        (SELECT count(*) FROM approvals_comment m WHERE m.approval_id = r.id)
    FROM approvals_approval r
        LEFT JOIN approvals_approvalclaim c
            ON c.approval_id = r.id AND c.until > clock_timestamp() AND r.status = 'pending'
        LEFT JOIN approvals_handover h ON h.approval_id = r.id AND r.status = 'pending'
    WHERE r.id = ANY(%(approvals)s)
"""
_VIEWERS = """
    SELECT person FROM approvals_approvalviewer WHERE approval_id = %(approval)s AND person <> %(person)s
        AND at > clock_timestamp() - %(open_for)s ORDER BY person LIMIT %(most)s
"""
_COMMENTS = """
    SELECT json_agg(json_build_array(m.id, m.person, m.text, m.at, m.signature, m.key_id) ORDER BY m.at, m.id)::text
    FROM approvals_comment m WHERE m.approval_id = %(approval)s
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """The claim of a pending request, its last hand-over, and the number of its comments. None where there is none.

    A hand-over without `handed_by` is not the one that a person signed, so its note is not shown.
    """

    claimed_by: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    handed_to: str | None = None
    handed_by: str | None = None
    note: str | None = None
    comments: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """A comment. `is_signed` is False if it is not the one that its person wrote."""

    person: str
    text: str
    at: datetime
    is_signed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Teamwork:
    """The mark of a request, the other people who have it open, and its comments, oldest first."""

    mark: Mark
    viewers: tuple[str, ...]
    comments: tuple[Remark, ...]


def read_marks(approval_ids: Collection[UUID]) -> Mapping[UUID, Mark]:
    """Return the mark of each request that has a claim, a hand-over or a comment, in one query."""
    if not approval_ids:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(_MARKS, {"approvals": list(approval_ids)})
        marks_by_id = {row[0]: _mark(*row) for row in cursor.fetchall()}
    return {request: mark for request, mark in marks_by_id.items() if mark != Mark()}


def read_teamwork(approval_id: UUID, person: str) -> Teamwork:
    """Return the teamwork on a request, for this reader, in one query."""
    parameters: dict[str, Any] = {
        "approvals": [approval_id],
        "approval": approval_id,
        "person": person,
        "open_for": OPEN_FOR,
        "most": MAX_VIEWERS,
    }
    sql = f"SELECT found.*, ARRAY({_VIEWERS}), ({_COMMENTS}) FROM ({_MARKS}) found"
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        row = cursor.fetchone()
    if row is None:  # the request was removed
        return Teamwork(mark=Mark(), viewers=(), comments=())
    *mark, viewers, comments_json = row
    comments = list[Remark]()
    for comment_id, author, text, at, signature, key_id in json.loads(comments_json or "[]"):
        comment = Comment(
            id=UUID(comment_id),
            approval_id=approval_id,
            person=author,
            text=text,
            at=datetime.fromisoformat(at),
            signature=signature,
            key_id=key_id,
        )
        is_signed = rows.is_valid(comment)
        comments.append(Remark(person=author, text=text, at=comment.at, is_signed=is_signed))
    return Teamwork(
        mark=_mark(*mark),
        viewers=tuple(viewers),
        comments=tuple(comments),
    )


def _mark(
    approval_id: UUID,
    claimed_by: str | None,
    since: datetime | None,
    until: datetime | None,
    handed_to: str | None,
    handed_by: str | None,
    note: str | None,
    handed_at: datetime | None,
    signature: str | None,
    key_id: str | None,
    count: int,
) -> Mark:
    if handed_at is not None:
        handed = Handover(
            approval_id=approval_id,
            person=handed_to or "",
            by=handed_by or "",
            note=note or "",
            at=handed_at,
            signature=signature or "",
            key_id=key_id or "",
        )
        if not rows.is_valid(handed):
            handed_by = note = None
    return Mark(
        claimed_by=claimed_by,
        since=since,
        until=until,
        handed_to=handed_to,
        handed_by=handed_by,
        note=note,
        comments=count,
    )

"""Keeps how a person read a request before they decided it: a measure of one's own reading, never a check.

The browser measures, so the values prove nothing. They are bounded, stored after the decision, and read by nothing that
decides. A person sees their own; other people see only the share of the team.
"""

import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median
from typing import Any, Final
from uuid import UUID

from django.db import DatabaseError, transaction
from django.db.models import F

from approvals import clock
from approvals.models import ReviewTime
from approvals.reads.approval_views import ApprovalView
from runtime.ports.access import Actor

log = logging.getLogger(__name__)

MS_PER_WORD: Final = 150  # 400 words a minute, a fast reader
LETTERS: Final = 12  # a longer run of letters counts as several words
MAIN: Final = ("what", "preview", "odd")  # sections that a considered decision has seen
MAX_TEXT: Final = 2_000
MAX_SECTIONS: Final = 20
MAX_MS: Final = 90 * 86_400_000
LAST, DAYS, LEAST = (
    1_000,
    30,
    20,
)  # decisions of the share, of how many days, and how few are too few

_NAME: Final = re.compile(r"[a-z][a-z-]{0,29}")
_WORD: Final = re.compile(r"\w+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What the page sent: milliseconds since the request was first seen and opened, and those in which it was visible.

    `sections` says of each section whether it came into view.
    """

    first_seen_ms: int | None
    opened_ms: int
    visible_ms: int
    sections: Mapping[str, bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """How many decisions of the team were considered, and the medians of their times.

    `considered` is None if there are fewer than LEAST decisions, or only those of one person.
    """

    decisions: int
    considered: int | None
    visible: timedelta
    reading: timedelta


def parse_measurement(text: str) -> Measured | None:
    """Read what the page sent; None if it sent nothing, or anything else."""
    try:
        sent = json.loads(text) if len(text) <= MAX_TEXT else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(sent, dict):
        return None
    opened_ms, visible_ms = (_parse_duration(sent.get(name)) for name in ("opened", "visible"))
    sections = sent.get("sections")
    if opened_ms is None or visible_ms is None or not isinstance(sections, dict):
        return None
    names = [name for name in sections if _NAME.fullmatch(name)][:MAX_SECTIONS]
    return Measured(
        first_seen_ms=_parse_duration(sent.get("seen")),
        opened_ms=opened_ms,
        visible_ms=min(visible_ms, opened_ms),
        sections={name: sections[name] is True for name in names},
    )


def record_reading(
    approval: ApprovalView, measured_times: Measured | None, actor: Actor, *, edits: int = 0
) -> None:
    """Store the reading of a decision or vote of this person. A failure is logged: the decision stands."""
    if measured_times is None:
        return
    at = approval.decided_at or clock.read_time()
    needed = estimate_reading_ms(approval)
    row = ReviewTime(
        approval_id=approval.id,
        person=actor.person,
        first_seen_at=None
        if measured_times.first_seen_ms is None
        else _compute_start(at, measured_times.first_seen_ms, approval),
        opened_at=_compute_start(at, measured_times.opened_ms, approval),
        decided_at=at,
        visible_ms=measured_times.visible_ms,
        reading_ms=needed,
        sections=dict(measured_times.sections),
        considered=measured_times.visible_ms >= needed
        and all(measured_times.sections[name] for name in MAIN if name in measured_times.sections),
        channel="page",
        edits=edits,
    )
    unchanged = ("approval", "person", "undone")
    fields = [field.name for field in ReviewTime._meta.concrete_fields if not field.primary_key]  # noqa: SLF001 - its documented API
    try:
        with transaction.atomic():
            ReviewTime.objects.bulk_create(
                [row],
                update_conflicts=True,
                unique_fields=["approval", "person"],
                update_fields=[name for name in fields if name not in unchanged],
            )
    except DatabaseError as exc:
        log.warning("Request %s: how it was read is not stored: %s", approval.id, exc)


def record_undo(approval_id: UUID, actor: Actor) -> None:
    """Count an undo, or the withdrawal of a vote, by this person. The next decision updates the row."""
    rows = ReviewTime.objects.filter(approval=approval_id, person=actor.person)
    rows.update(decided_at=None, undone=F("undone") + 1)


def erase(run: UUID) -> None:
    """Delete the readings of a run's requests, when retention takes their arguments."""
    ReviewTime.objects.filter(approval__run=run).delete()


def find_review_time(approval: ApprovalView, person: str) -> ReviewTime | None:
    """Return how this person read the request, None if it was not measured."""
    return ReviewTime.objects.filter(
        approval=approval.id, person=person, decided_at__isnull=False
    ).first()


def compute_team_share() -> Share:
    """Return the share of the team over the last decisions that were measured."""
    since = clock.read_time() - timedelta(days=DAYS)
    rows = ReviewTime.objects.filter(decided_at__gte=since).order_by("-decided_at")
    rows_read = list(rows.values_list("person", "considered", "visible_ms", "reading_ms")[:LAST])
    enough = len(rows_read) >= LEAST and len({person for person, *_ in rows_read}) > 1
    considered = sum(one for _, one, *_ in rows_read)
    return Share(
        decisions=len(rows_read),
        considered=considered if enough else None,
        visible=_compute_median([row[2] for row in rows_read]),
        reading=_compute_median([row[3] for row in rows_read]),
    )


def estimate_reading_ms(approval: ApprovalView) -> int:
    """Return how long a fast reader needs for the words of the request: sentence, arguments and preview."""
    text = [approval.sentence, json.dumps([approval.args, approval.preview], ensure_ascii=False)]
    words = (word for part in text for word in _WORD.findall(part))
    return min(MAX_MS, MS_PER_WORD * sum(-(-len(word) // LETTERS) for word in words))


def count_edits(approval: ApprovalView) -> int:
    """Return how many arguments the decision changed."""
    before, after = approval.args, approval.edited
    if not isinstance(before, dict) or not isinstance(after, dict):
        return 0
    missing = object()
    return sum(before.get(name, missing) != after.get(name, missing) for name in {*before, *after})


def _compute_median(times: Sequence[int]) -> timedelta:
    return timedelta(milliseconds=median(times or [0]))


def _parse_duration(value: Any) -> int | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return int(value) if is_number and 0 <= value <= MAX_MS else None


def _compute_start(at: datetime, ms: int, approval: ApprovalView) -> datetime:
    """Return the start of the measured period, but no earlier than the approval was opened."""
    return max(approval.stored.created_at, at - timedelta(milliseconds=ms))

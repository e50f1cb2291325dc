"""How a reviewer read a request: the measure that a page sends with the decision, and the panel that shows it."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.http import HttpRequest

from approvals.reads import review_times
from approvals.reads.approval_views import ApprovalView
from runtime.ports.access import Actor
from runtime.web.requests import form_text

FIELD: Final = "reading"
_SECTIONS: Final = {
    "what": "the call",
    "preview": "its preview",
    "odd": "the unusual values",
    "similar": "the comparison with earlier calls",
    "why": "the agent's reasons",
    "given": "what the run was given",
    "facts": "the details",
    "votes": "the approvals so far",
    "together": "the calls requested together",
    "around": "the progress of the run",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingPanel:
    """How the reader read the request: `considered` for as long as its words take. Else only `is_measured` is known."""

    is_measured: bool
    considered: bool = False
    first_seen_at: datetime | None = None
    opened_at: datetime | None = None
    visible: timedelta = timedelta()
    needed: timedelta = timedelta()
    seen_sections: tuple[str, ...] = ()
    unseen_sections: tuple[str, ...] = ()
    edits: int = 0
    undone: int = 0


def record(request: HttpRequest, approval: ApprovalView, actor: Actor) -> None:
    """Store what the page measured, after a decision or a vote."""
    measured_times = review_times.measured(form_text(request.POST, FIELD))
    review_times.record(approval, measured_times, actor, edits=review_times.edits(approval))


def panel(approval: ApprovalView, reader: str) -> ReadingPanel | None:
    """Return the reader's own reading of a request that they decided or voted on; None for other people's."""
    decided = approval.decided_by == reader and approval.allowance is None
    is_theirs = decided or reader in approval.voted
    if not is_theirs or approval.removed_at is not None:
        return None
    review_time = review_times.of(approval, reader)
    if review_time is None:
        return ReadingPanel(is_measured=False)
    sections = {
        _SECTIONS[name]: is_seen
        for name, is_seen in review_time.sections.items()
        if name in _SECTIONS
    }
    return ReadingPanel(
        is_measured=True,
        considered=review_time.considered,
        first_seen_at=review_time.first_seen_at,
        opened_at=review_time.opened_at,
        visible=timedelta(milliseconds=review_time.visible_ms),
        needed=timedelta(milliseconds=review_time.reading_ms),
        seen_sections=tuple(name for name, is_seen in sections.items() if is_seen),
        unseen_sections=tuple(name for name, is_seen in sections.items() if not is_seen),
        edits=review_time.edits,
        undone=review_time.undone,
    )

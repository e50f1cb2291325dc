"""The parts of the form of a decision: the reason of a denial, the second step, a result, and how it was read.

A denial has suggested reasons, and the text that the agent receives. In the second step to approve a high-risk call,
the page names the object, and the reviewer repeats the name. A mouse and keyboard type it. A touch screen shows a
button that names it, because typing there takes longer than the danger is worth. Both send the name, so the server
checks the same in either case, and without JavaScript. The result of a call is reported in doubt, or given instead of
the call. How a reviewer read a request is a measure that a page sends with the decision, and the panel that shows it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.http import HttpRequest

from approvals.reads import review_times
from approvals.reads.approval_views import ApprovalView
from approvals.reads.related_requests import OtherApprovals
from approvals.requests import snapshot
from runtime.core.run.continuation import MAX_DENIALS
from runtime.core.values.enums import CallState
from runtime.core.values.ids import make_turn_key
from runtime.core.values.verdicts import CHANGES, DENIED
from runtime.errors import InvalidInput, RequestError
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.reads.transcript import Transcript
from runtime.web.requests import read_text

# For tools whose authors suggest none. Each says what the agent should do next.
REASONS: Final = (
    "Not needed. Continue without it.",
    "The arguments are wrong. Check them, and propose the call again.",
    "Not now. Finish without it, and say that it was left out.",
    "Not allowed. Do not try to do it in another way.",
)


# The same for a question.
NO_ANSWERS: Final = (
    "The answer is not known. Continue without an answer.",
    "Decide this by what you know, and say so in the result.",
    "This is not needed. Continue without it.",
)
TYPED, TAPPED = "confirm", "confirmed"
READING_FIELD: Final = "reading"
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


def build_denial_context(approval: ApprovalView, *, ends_run: bool) -> dict[str, Any]:
    """Build the context; if the denial ends the run, the agent receives nothing."""
    if approval.status != "pending" or approval.denial is not None or len(approval.path) < 2:
        return {}
    is_question = approval.is_question
    suggested = wiring.resolve_catalogue().deny_reasons(approval.path[-2], approval.tool)
    return {
        "deny_reasons": suggested or (NO_ANSWERS if is_question else REASONS),
        "denial_text": "" if ends_run else DENIED,
        "changes_text": CHANGES,
    }


def read_denied_turns(
    approval: ApprovalView, other_approvals: OtherApprovals, transcript: Transcript
) -> frozenset[str]:
    """Return the turns in which people denied the tool in the run, with those whose denial is not in effect yet.

    Denials of an item of a list count for nothing but the item, so there are none for a call of one.
    """
    to_come: set[str] = set()
    if transcript.is_of_item(approval.frame):
        return frozenset()
    for frame, name, gate in other_approvals.denied:
        if transcript.is_of_item(frame):
            continue
        call = transcript.call(frame, name)
        if call and call.state is CallState.GATED and call.spans[-1].gate == gate:
            to_come.add(make_turn_key(frame, name))
    return transcript.list_denied_turns(approval.tool) | to_come


def must_end_run(
    approval: ApprovalView, denied: frozenset[str], page_context: Mapping[str, Any]
) -> bool:
    """Tell whether the run ends if this call is denied too; `page_context` is that of the page."""
    this = {make_turn_key(approval.frame, approval.call)} if page_context["call"] else set()
    return len(denied | this) >= MAX_DENIALS > len(denied)


def is_opened_by(request: HttpRequest, problem: RequestError | None) -> bool:
    """Tell whether the first step was sent: its form has no field for the name, which is no mistake."""
    return _needs_second_step(problem) and TYPED not in request.POST


def build_second_step_context(
    request: HttpRequest, approval: ApprovalView, problem: RequestError | None
) -> dict[str, Any]:
    """Build the context of the second step, which also stays open if the server refuses another field."""
    is_asked = _needs_second_step(problem) or (
        isinstance(problem, InvalidInput) and TYPED in request.POST
    )
    return {
        "second_step": is_asked and approval.confirm is not None and approval.denial is None,
        "typed": read_text(request.POST, TYPED),
    }


def _needs_second_step(problem: RequestError | None) -> bool:
    return isinstance(problem, InvalidInput) and problem.field == "confirm"


def build_result_context(
    request: HttpRequest, approval: ApprovalView, problem: RequestError | None
) -> dict[str, Any]:
    """Build the context of the field: what the tool returns, and the text and the problem of the form just sent."""
    schema = approval.result_schema
    return {
        "returns_nothing": isinstance(schema, dict) and schema.get("type") == "null",
        "returns_text": snapshot.is_text_schema(schema),
        "result": read_text(request.POST, "result"),
        "wrong_result": isinstance(problem, InvalidInput) and problem.field.startswith("result"),
    }


def read_result(request: HttpRequest, approval: ApprovalView) -> Any:
    """Read the result from the form. An unreadable one is refused only to a person who may decide the request."""
    text = read_text(request.POST, "result")
    if approval.denial is not None or approval.status != "pending" or not text.strip():
        return snapshot.ABSENT
    return snapshot.read_result(text, approval.result_schema)


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


def record_reading(request: HttpRequest, approval: ApprovalView, actor: Actor) -> None:
    """Store what the page measured, after a decision or a vote."""
    measured_times = review_times.parse_measurement(read_text(request.POST, READING_FIELD))
    review_times.record_reading(
        approval, measured_times, actor, edits=review_times.count_edits(approval)
    )


def build_reading_panel(approval: ApprovalView, reader: str) -> ReadingPanel | None:
    """Return the reader's own reading of a request that they decided or voted on; None for other people's."""
    decided = approval.decided_by == reader and approval.allowance is None
    is_theirs = decided or reader in approval.voted
    if not is_theirs or approval.removed_at is not None:
        return None
    review_time = review_times.find_review_time(approval, reader)
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

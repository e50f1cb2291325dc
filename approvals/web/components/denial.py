"""The part of the page that denies a call: suggested reasons, and the text that the agent receives."""

from collections.abc import Mapping
from typing import Any, Final

from django.http import HttpRequest

from approvals.reads.approval_views import ApprovalView, OtherApprovals
from runtime.core.run.continuation import MAX_DENIALS
from runtime.core.values.enums import CallState
from runtime.core.values.ids import turn_key
from runtime.core.values.verdicts import CHANGES, DENIED
from runtime.ports import wiring
from runtime.reads.transcript import Transcript
from runtime.web.requests import form_text

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


def context(approval: ApprovalView, *, ends_run: bool) -> dict[str, Any]:
    """Build the context; if the denial ends the run, the agent receives nothing."""
    if approval.status != "pending" or approval.denial is not None or len(approval.path) < 2:
        return {}
    is_question = approval.is_question
    suggested = wiring.catalogue().deny_reasons(approval.path[-2], approval.tool)
    return {
        "deny_reasons": suggested or (NO_ANSWERS if is_question else REASONS),
        "denial_text": "" if ends_run else DENIED,
        "changes_text": CHANGES,
    }


def turns(
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
            to_come.add(turn_key(frame, name))
    return transcript.denied(approval.tool) | to_come


def ends_run(
    approval: ApprovalView, denied: frozenset[str], page_context: Mapping[str, Any]
) -> bool:
    """Tell whether the run ends if this call is denied too; `page_context` is that of the page."""
    this = {turn_key(approval.frame, approval.call)} if page_context["call"] else set()
    return len(denied | this) >= MAX_DENIALS > len(denied)


def reason(request: HttpRequest) -> str:
    """Return the reason of the form: as typed, after the chosen one if the browser runs no script."""
    preset, typed = form_text(request.POST, "preset"), form_text(request.POST, "reason")
    return f"{preset} {typed}".strip() if preset else typed

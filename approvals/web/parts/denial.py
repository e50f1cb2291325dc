"""The part of the page that denies a call: suggested reasons, and the text that the agent receives."""

from typing import Any, Final

from django.http import HttpRequest

from approvals.queries.requests import Approval
from runtime.core.denial_text import changes_text, denial_text
from runtime.core.enums import GateKind
from runtime.ports import wiring
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


def context(shown: Approval, *, ends_run: bool) -> dict[str, Any]:
    """Build the context; if the denial ends the run, the agent receives nothing."""
    if shown.status != "pending" or shown.denial is not None or len(shown.path) < 2:
        return {}
    is_question = shown.kind == GateKind.QUESTION
    suggested = wiring.catalogue().deny_reasons(shown.path[-2], shown.tool)
    return {
        "deny_reasons": suggested or (NO_ANSWERS if is_question else REASONS),
        "told": "" if ends_run else denial_text(""),
        "changes_told": changes_text(""),
    }


def reason(request: HttpRequest) -> str:
    """Return the reason of the form: as typed, after the chosen one if the browser runs no script."""
    chosen, typed = form_text(request.POST, "preset"), form_text(request.POST, "reason")
    return f"{chosen} {typed}".strip() if chosen else typed

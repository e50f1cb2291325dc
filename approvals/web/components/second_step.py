"""The second step to approve a high-risk call: the page names the object, and the reviewer repeats the name.

A mouse and keyboard type it. A touch screen shows a button that names it, because typing there takes longer than the
danger is worth. Both send the name, so the server checks the same in either case, and without JavaScript.
"""

from typing import Any

from django.http import HttpRequest

from approvals.reads.approval_views import ApprovalView
from runtime.errors import InvalidInput, RequestError
from runtime.web.requests import form_text

_TYPED, _TAPPED = "confirm", "confirmed"


def read_name(request: HttpRequest) -> str:
    """Return the name as the reviewer typed it, or that of the button."""
    return form_text(request.POST, _TAPPED) or form_text(request.POST, _TYPED)


def is_opened_by(request: HttpRequest, problem: RequestError | None) -> bool:
    """Tell whether the first step was sent: its form has no field for the name, which is no mistake."""
    return _asks(problem) and _TYPED not in request.POST


def context(
    request: HttpRequest, approval: ApprovalView, problem: RequestError | None
) -> dict[str, Any]:
    """Build the context of the second step, which also stays open if the server refuses another field."""
    is_asked = _asks(problem) or (isinstance(problem, InvalidInput) and _TYPED in request.POST)
    return {
        "second_step": is_asked and approval.confirm is not None and approval.denial is None,
        "typed": form_text(request.POST, _TYPED),
    }


def _asks(problem: RequestError | None) -> bool:
    return isinstance(problem, InvalidInput) and problem.field == "confirm"

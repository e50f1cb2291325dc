"""What the page of a request says about other people: claims, hand-overs, open pages and comments."""

from typing import Any

from django.http import HttpRequest

from approvals.decisions import teamwork
from approvals.reads import approval_views, marks


def context(request: HttpRequest, approval: approval_views.ApprovalView) -> dict[str, Any]:
    """Read who else is concerned with the request, for its page."""
    reader = request.user.get_username()
    return {
        "teamwork": marks.of(approval.id, reader),
        "reader": reader,
        "max_comment": teamwork.MAX_COMMENT,
    }

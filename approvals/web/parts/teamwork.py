"""What the page of a request says about other people: claims, hand-overs, open pages and comments."""

from typing import Any

from django.http import HttpRequest

from approvals.queries import requests
from approvals.teamwork import claims, listing


def context(request: HttpRequest, approval: requests.ApprovalView) -> dict[str, Any]:
    """Read who else is concerned with the request, for its page."""
    reader = request.user.get_username()
    return {
        "teamwork": listing.of(approval.id, reader),
        "reader": reader,
        "max_comment": claims.MAX_COMMENT,
    }

"""What the page of a request says about other people: claims, hand-overs, open pages and comments."""

from datetime import timedelta
from typing import Any

from django.http import HttpRequest
from django.utils import timezone

from approvals.decisions import teamwork
from approvals.decisions.extend import MAX_DAYS
from approvals.reads import approval_views, marks
from runtime.core.values.limits import MAX_REASON
from runtime.web.forms import PageForm, TypedField


class ExtensionForm(PageForm):
    """A new deadline in the reader's time zone, by default a day after the present one, and why it moves."""

    until = TypedField("New deadline", "datetime-local", required=True)
    reason = TypedField("Reason", "long", maximum=MAX_REASON, rows=2, required=True)

    def __init__(self, approval: approval_views.ApprovalView, data: Any = None) -> None:
        later = timezone.localtime(approval.expires_at) + timedelta(days=1)
        super().__init__(data, initial={"until": f"{later:%Y-%m-%dT%H:%M}"}, ids="extend-")
        latest = timezone.localtime() + timedelta(days=MAX_DAYS)
        self.fields["until"].help_text = (
            f"Later than the present one, and at most {MAX_DAYS} days from now: until"
            f" {latest:%Y-%m-%d %H:%M %Z}."
        )


def context(request: HttpRequest, approval: approval_views.ApprovalView) -> dict[str, Any]:
    """Read who else is concerned with the request, for its page."""
    reader = request.user.get_username()
    return {
        "teamwork": marks.of(approval.id, reader),
        "reader": reader,
        "max_comment": teamwork.MAX_COMMENT,
        "extension": ExtensionForm(approval) if approval.may_extend else None,
    }

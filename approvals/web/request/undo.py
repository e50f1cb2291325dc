"""Undoes a reviewer's own decision, from the page of the request."""

from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_POST

from approvals.decisions.undo import undo as undo_decision
from approvals.errors import AlreadyCancelled, AlreadyDecided, Expired, NotDecided, TooLate
from approvals.rights import principals
from approvals.web.request.request_page import to_page


@require_POST
@login_required
def undo(request: HttpRequest, approval: UUID) -> HttpResponse:
    """Undo the decision: the request is open again, and the run has not received the decision."""
    try:
        undo_decision(approval_id=approval, actor=principals.actor_of(request.user))
    except (AlreadyDecided, AlreadyCancelled, Expired, NotDecided, TooLate) as exc:
        messages.error(request, f"Nothing was changed. {exc.detail}")
    else:
        messages.success(request, "Undone. Waiting for a decision again.")
    return to_page(request, approval)

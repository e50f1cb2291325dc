"""The part of the page that requests changes, and that links the revisions of a call with their differences."""

from typing import Any

from django.http import HttpRequest

from approvals.queries import revisions
from approvals.queries.requests import ApprovalView
from approvals.requests.argument_changes import changes
from approvals.rights.principals import Principal
from approvals.web.request.decision_form import Problem
from runtime.core.run.continuation import MAX_REVISIONS


def context(
    approval: ApprovalView,
    principal: Principal | None,
    problem: Problem | None,
    request: HttpRequest,
) -> dict[str, Any]:
    """Build the context. `wrong_changes` is set if the form of the changes was sent and refused."""
    earlier = revisions.before(approval, principal)
    sent = request.method == "POST" and request.path.endswith("/changes/")
    return {
        "earlier": earlier,
        "revised": [] if earlier is None else _changes(earlier, approval),
        "later": revisions.after(approval, principal),
        "is_last_revision": approval.revision >= MAX_REVISIONS,
        "wrong_changes": sent and problem is not None,
    }


def _changes(earlier: ApprovalView, approval: ApprovalView) -> list[Any]:
    """List the differences of the arguments. None are shown once retention has removed them."""
    gone = earlier.removed_at or approval.removed_at
    if gone or not isinstance(earlier.args, dict) or not isinstance(approval.args, dict):
        return []
    return changes(earlier.args, approval.args)

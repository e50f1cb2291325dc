"""Reads the requests before and after a request, where people requested changes."""

from approvals.models import Approval
from approvals.queries.requests import ApprovalView, to_view
from approvals.rights import approvals
from approvals.rights.principals import Principal


def before(approval: ApprovalView, principal: Principal | None) -> ApprovalView | None:
    """Return the request that this one revises; None if it revises none, or one that the principal may not read."""
    return None if approval.revises is None else _find(approval, principal, gate=approval.revises)


def after(approval: ApprovalView, principal: Principal | None) -> ApprovalView | None:
    """Return the request that revises this one; None if there is none yet, or the principal may not read it."""
    if not approval.changes_requested:
        return None
    return _find(approval, principal, revises=approval.gate)


def _find(shown: ApprovalView, principal: Principal | None, **key: object) -> ApprovalView | None:
    readable = approvals.readable_requests(principal)
    approval = Approval.objects.filter(readable, run=shown.run, **key).first()
    return None if approval is None else to_view(approval, principal)

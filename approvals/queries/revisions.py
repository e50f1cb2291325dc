"""Reads the requests before and after a request, where people requested changes."""

from approvals.models import Request
from approvals.permissions import request_rules
from approvals.permissions.principals import Principal
from approvals.queries.requests import Approval, to_view


def before(shown: Approval, principal: Principal | None) -> Approval | None:
    """Return the request that this one revises; None if it revises none, or one that the principal may not read."""
    return None if shown.revises is None else _find(shown, principal, gate=shown.revises)


def after(shown: Approval, principal: Principal | None) -> Approval | None:
    """Return the request that revises this one; None if there is none yet, or the principal may not read it."""
    if not shown.changes_requested:
        return None
    return _find(shown, principal, revises=shown.gate)


def _find(shown: Approval, principal: Principal | None, **key: object) -> Approval | None:
    readable = request_rules.readable_requests(principal)
    row = Request.objects.filter(readable, run=shown.run, **key).first()
    return None if row is None else to_view(row, principal)

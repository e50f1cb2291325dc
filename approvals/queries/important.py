"""Finds the requests that a reviewer reads first: calls at high risk with an odd value, of any deadline."""

from collections.abc import Iterable
from dataclasses import replace
from uuid import UUID

from approvals.models import IN_DOUBT, OF_CALL, Approval
from approvals.queries import inbox
from approvals.queries.orders import Order
from approvals.queries.past_calls import usual
from approvals.queries.past_calls.usual import OdditiesByApproval
from approvals.queries.requests import ApprovalView, to_view
from approvals.rights import approvals
from approvals.rights.principals import Principal
from runtime.core.values.enums import GateKind, Risk

LOOKED_AT = 20  # calls at high risk, those with the next deadlines
MOST = 3  # calls that are listed before all others


def with_doubts(
    principal: Principal | None, *, doubts: bool
) -> tuple[tuple[ApprovalView, ...], tuple[ApprovalView, ...]]:
    """Return the first LOOKED_AT calls at high risk that this person may decide, and with `doubts` those in doubt.

    One query reads both.
    """
    rows = Approval.objects.filter(
        approvals.readable_requests(principal),
        approvals.decidable_requests(principal),
        status=Approval.Status.PENDING,
    )
    risky = Order().ordered(rows.filter(OF_CALL, risk=Risk.HIGH))[:LOOKED_AT]
    unknown = rows.filter(IN_DOUBT).order_by("created_at", "id")[: inbox.LIMIT]
    found = risky.union(unknown, all=True) if doubts else risky
    views = [to_view(approval, principal) for approval in found]
    return (
        tuple(one for one in views if GateKind(one.kind).is_approval),
        tuple(one for one in views if GateKind(one.kind).is_in_doubt),
    )


def previous_and_next(
    principal: Principal | None, approval: ApprovalView
) -> tuple[UUID | None, UUID | None]:
    """Return the requests before and after a request in the whole list, with the calls that it lists first."""
    risky, _ = with_doubts(principal, doubts=False)
    first = [one.id for one in chosen(risky, usual.of_requests(risky, principal))]
    if approval.id not in first:
        before, after = inbox.previous_and_next(principal, approval, without=first)
        return before or next(reversed(first), None), after
    place = first.index(approval.id)
    before = first[place - 1] if place else None
    if place + 1 < len(first):
        return before, first[place + 1]
    rest = inbox.page(principal, view=inbox.View.MINE).items
    return before, next((one.id for one in rest if one.id not in first), None)


def before_all(principal: Principal | None, approval: ApprovalView) -> tuple[UUID, ...]:
    """Return the calls that the inbox listed first before this one was decided."""
    risky, _ = with_doubts(principal, doubts=False)
    calls = (*risky, replace(approval, status="pending"))
    return tuple(one.id for one in chosen(calls, usual.of_requests(calls, principal)))


def chosen(items: Iterable[ApprovalView], odd: OdditiesByApproval) -> tuple[ApprovalView, ...]:
    """Return at most MOST of these calls: those at high risk with an odd value, the oddest first."""
    found = [
        approval
        for approval in items
        if approval.risk == Risk.HIGH and odd.by_request.get(approval.id)
    ]
    found.sort(key=lambda approval: odd.by_request[approval.id][0].weight)
    return tuple(found[:MOST])

"""Reads the lists of the inbox: requests a person may decide, and pending requests of others.

Pending requests are sorted by deadline, unless the reader chose another order. Another order, and the number of a saved
view, look only at the WINDOW requests with the next deadlines: there may be a million.
"""

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID

from django.core.exceptions import EmptyResultSet
from django.db import connection
from django.db.models import Q, QuerySet

from approvals.models import IN_DOUBT, Approval
from approvals.queries import filters, windows
from approvals.queries.orders import Order
from approvals.queries.requests import ApprovalView, to_view
from approvals.rights import approvals
from approvals.rights.principals import Principal
from runtime.errors import InvalidInput
from runtime.reads.runs import Page

LIMIT = 50
MAX_COUNT = 9_999
MAX_FOUND = 99  # of a saved view
DEFAULT = Order()


class View(StrEnum):
    """A tab of the inbox."""

    MINE = "mine"  # requests this person may decide
    OTHERS = "others"  # requests this person may read and other people decide
    ALL = "all"  # both; a link leads there, and no tab


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The numbers of pending requests, without the search: `mine`, the calls in doubt among them, and `others`.

    MAX_COUNT + 1 means more than MAX_COUNT. `found` holds the numbers of further searches as text, up to MAX_FOUND;
    None for a search that is refused. "3+" has three among the requests that were looked at, of more.
    """

    mine: int
    in_doubt: int
    others: int
    found: tuple[str | None, ...] = ()

    @property
    def mine_text(self) -> str:
        """The number of requests for this person, as text."""
        return _count_text(self.mine)

    @property
    def others_text(self) -> str:
        """The number of requests for others, as text."""
        return _count_text(self.others)

    @property
    def only_in_doubt(self) -> bool:
        """Whether all requests for this person are calls in doubt."""
        return self.mine == self.in_doubt <= MAX_COUNT


def counts(principal: Principal | None, searches: Sequence[tuple[View, str]] = ()) -> Counts:
    """Count the pending requests for this person and for others, and those of each view and search, in one query."""
    pending = Approval.objects.filter(
        approvals.readable_requests(principal), status=Approval.Status.PENDING
    )
    decidable = pending.filter(approvals.decidable_requests(principal))
    further = [_searched(principal, view, q) for view, q in searches]
    short = [
        one is not None and filters.is_short(q)
        for one, (_, q) in zip(further, searches, strict=True)
    ]
    lists = (
        decidable,
        decidable.filter(IN_DOUBT),
        pending.filter(approvals.undecidable_requests(principal)),
    )
    exact = [rows for rows, few in zip(further, short, strict=True) if rows is not None and few]
    other = [rows for rows, few in zip(further, short, strict=True) if rows is not None and not few]
    counted = [*((rows, MAX_COUNT) for rows in lists), *((rows, MAX_FOUND) for rows in exact)]
    (mine, unknown, others, *numbers), (looked_at, *some) = _counted(counted, pending, other)
    whole = looked_at < windows.WINDOW
    left = iter([_count_text(one, MAX_FOUND) for one in numbers])
    rest = iter([_count_text(one, MAX_FOUND, whole=whole) for one in some])
    return Counts(
        mine=mine,
        in_doubt=unknown,
        others=others,
        found=tuple(
            None if rows is None else next(left if few else rest)
            for rows, few in zip(further, short, strict=True)
        ),
    )


def _searched(principal: Principal | None, view: View, q: str) -> QuerySet[Approval] | None:
    try:
        return _pending(principal, view, q)
    except InvalidInput:
        return None


def _pending(principal: Principal | None, view: View, q: str) -> QuerySet[Approval]:
    """Select the pending requests of a view, calls in doubt included. Raise InvalidInput naming `q`."""
    match view:
        case View.MINE:
            chosen = approvals.decidable_requests(principal)
        case View.OTHERS:
            chosen = approvals.undecidable_requests(principal)
        case View.ALL:
            chosen = Q()
    readable = approvals.readable_requests(principal)
    return Approval.objects.filter(
        readable,
        chosen,
        filters.condition(q, principal.person if principal else ""),
        status=Approval.Status.PENDING,
    )


def _counted(
    lists: Sequence[tuple[QuerySet[Approval], int]],
    rows: QuerySet[Approval],
    inside: Sequence[QuerySet[Approval]],
) -> tuple[list[int], list[int]]:
    """Count in one query the rows of each list, up to its limit + 1, and those inside of the window of `rows`.

    Of the window it counts first all rows, then those of each list, up to MAX_FOUND + 1.
    """
    sql, given = windows.values(
        "count(*)", *(rows.values("pk")[: most + 1] for rows, most in lists)
    )
    window = "NULL"
    if inside:
        with suppress(EmptyResultSet):
            numbers, more = windows.values(
                "count(*)",
                Approval.objects.values("pk"),
                *(one.values("pk")[: MAX_FOUND + 1] for one in inside),
            )
            first, parameters = windows.of(rows)
            window = f"({first} SELECT ARRAY[{numbers}])"
            given += [*parameters, *more]
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {sql}, {window}", given)
        *found, of_window = cursor.fetchone()
    some = of_window or [0] * (len(inside) + 1)
    return [count or 0 for count in found], [count or 0 for count in some]


def page(
    principal: Principal | None,
    *,
    view: View,
    q: str = "",
    order: Order = DEFAULT,
    cursor: str | None = None,
) -> Page[ApprovalView]:
    """Read one page of a list. `mine` excludes calls in doubt, see `in_doubt`. Raise InvalidInput naming either."""
    rows = _pending(principal, view, q)
    if view == View.MINE:
        rows = rows.exclude(IN_DOUBT)
    chosen = order.ordered(rows if order.is_by_deadline else Approval.objects.all())
    if cursor is not None:
        chosen = chosen.filter(order.after_cursor(cursor))
    first = chosen[: LIMIT + 1]
    found = [to_view(approval, principal) for approval in _read(rows, first, order)]
    items = tuple(found[:LIMIT])
    return Page(items=items, next=order.cursor(items[-1]) if len(found) > LIMIT else None)


def in_doubt(principal: Principal | None, *, q: str = "") -> tuple[ApprovalView, ...]:
    """List the calls in doubt that this person may resolve, oldest first. Raises InvalidInput naming `q`."""
    rows = Approval.objects.filter(
        approvals.decidable_requests(principal),
        filters.condition(q, principal.person if principal else ""),
        IN_DOUBT,
        status=Approval.Status.PENDING,
    )
    return tuple(
        to_view(approval, principal) for approval in rows.order_by("created_at", "id")[:LIMIT]
    )


def previous_and_next(
    principal: Principal | None,
    approval: ApprovalView,
    q: str = "",
    order: Order = DEFAULT,
    without: Collection[UUID] = (),
) -> tuple[UUID | None, UUID | None]:
    """Return the requests before and after an approval in the list `mine`, even if the list does not contain it.

    Those `without` are left out. Raises InvalidInput naming `q`.
    """
    rows = Approval.objects.filter(
        approvals.decidable_requests(principal),
        filters.condition(q, principal.person if principal else ""),
        ~IN_DOUBT,
        status=Approval.Status.PENDING,
    ).exclude(pk__in=[approval.id, *without])
    later, window, given = order.after(approval), "", tuple[Any, ...]()
    try:
        if not order.is_by_deadline:
            window, given = windows.of(rows)
            rows = Approval.objects.all()
    except EmptyResultSet:
        return None, None
    sql, parameters = windows.values(
        "id",
        order.ordered(rows, backwards=True).exclude(later).values("id")[:1],
        order.ordered(rows).filter(later).values("id")[:1],
    )
    with connection.cursor() as cursor:
        cursor.execute(f"{window} SELECT {sql}", [*given, *parameters])
        before, after = cursor.fetchone()
    return before, after


def _read(
    rows: QuerySet[Approval], chosen: QuerySet[Approval], order: Order
) -> QuerySet[Approval] | list[Approval]:
    """Read the chosen rows among these. In an order that no index has, look only at their window."""
    if order.is_by_deadline:
        return chosen
    try:
        return windows.read(rows, chosen)
    except EmptyResultSet:
        return []


def closed(principal: Principal | None, known: Collection[UUID]) -> tuple[ApprovalView, ...]:
    """Return the requests among `known`, the rows on a reader's screen, that are no longer pending."""
    rows = Approval.objects.filter(approvals.readable_requests(principal), pk__in=known)
    return tuple(
        to_view(approval, principal) for approval in rows.exclude(status=Approval.Status.PENDING)
    )


def last_closed(principal: Principal | None) -> ApprovalView | None:
    """Return the request closed last, None if there is none."""
    rows = Approval.objects.filter(approvals.readable_requests(principal), decided_at__isnull=False)
    approval = rows.order_by("-decided_at", "-id").first()
    return None if approval is None else to_view(approval, principal)


def _count_text(count: int, most: int = MAX_COUNT, *, whole: bool = True) -> str:
    """Return the number as text. It is not `whole` if only some rows were looked at."""
    return f"{count:,}" if whole and count <= most else f"{min(count, most):,}+"

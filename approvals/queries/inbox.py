"""Reads the lists of the inbox: requests a person may decide, and pending requests of others.

Pending requests are sorted by deadline, unless the reader chose another order.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID

from django.core.exceptions import EmptyResultSet
from django.db import connection
from django.db.models import Q, QuerySet

from approvals.models import Request
from approvals.permissions import request_rules
from approvals.permissions.principals import Principal
from approvals.queries import filters
from approvals.queries.orders import Order
from approvals.queries.requests import Approval, to_view
from runtime.core.enums import GateKind
from runtime.errors import InvalidInput
from runtime.queries.runs import Page

LIMIT = 50
MAX_COUNT = 9_999
MAX_FOUND = 99  # of a saved view
DEFAULT = Order()


class View(StrEnum):
    """A tab of the inbox."""

    MINE = "mine"  # requests this person may decide
    OTHERS = "others"  # requests this person may read and other people decide


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The numbers of pending requests, without the search: `mine`, the calls in doubt among them, and `others`.

    MAX_COUNT + 1 means more than MAX_COUNT. `found` holds the numbers of further searches as text, up to MAX_FOUND;
    None for a search that is refused.
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
    pending = Request.objects.filter(
        request_rules.readable_requests(principal), status=Request.Status.PENDING
    )
    decidable = pending.filter(request_rules.decidable_requests(principal))
    further = [_searched(principal, view, q) for view, q in searches]
    lists = (
        decidable,
        decidable.filter(kind=GateKind.IN_DOUBT),
        pending.filter(request_rules.undecidable_requests(principal)),
    )
    mine, unknown, others, *numbers = _counted(
        *((rows, MAX_COUNT) for rows in lists),
        *((rows, MAX_FOUND) for rows in further if rows is not None),
    )
    left = iter(numbers)
    return Counts(
        mine=mine,
        in_doubt=unknown,
        others=others,
        found=tuple(None if one is None else _count_text(next(left), MAX_FOUND) for one in further),
    )


def _searched(principal: Principal | None, view: View, q: str) -> QuerySet[Request] | None:
    try:
        return _pending(principal, view, q)
    except InvalidInput:
        return None


def _pending(principal: Principal | None, view: View, q: str) -> QuerySet[Request]:
    """Select the pending requests of a view, calls in doubt included. Raise InvalidInput naming `q`."""
    chosen = (
        request_rules.decidable_requests(principal)
        if view == View.MINE
        else request_rules.undecidable_requests(principal)
    )
    readable = request_rules.readable_requests(principal)
    return Request.objects.filter(
        readable,
        chosen,
        filters.condition(q, principal.person if principal else ""),
        status=Request.Status.PENDING,
    )


def _counted(*lists: tuple[QuerySet[Request], int]) -> list[int]:
    """Count the rows of each list in one query, up to its limit + 1: there may be a million rows."""
    return [
        count or 0
        for count in _values("count(*)", *(rows.values("pk")[: most + 1] for rows, most in lists))
    ]


def _values(what: str, *queries: QuerySet[Request, Any]) -> list[Any]:
    """Select one value of each query's rows, all in one query; None for a query without rows."""
    selected, given = [], list[Any]()
    for query in queries:
        try:
            sql, parameters = query.query.sql_with_params()
        except EmptyResultSet:
            selected.append("NULL")
            continue
        selected.append(f"(SELECT {what} FROM ({sql}) AS found)")
        given += parameters
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {', '.join(selected)}", given)
        return list(cursor.fetchone())


def page(
    principal: Principal | None,
    *,
    view: View,
    q: str = "",
    order: Order = DEFAULT,
    cursor: str | None = None,
) -> Page[Approval]:
    """Read one page of a list. `mine` excludes calls in doubt, see `in_doubt`. Raise InvalidInput naming either."""
    rows = _pending(principal, view, q)
    if view == View.MINE:
        rows = rows.exclude(kind=GateKind.IN_DOUBT)
    rows = order.ordered(rows)
    if cursor is not None:
        rows = rows.filter(order.after_cursor(cursor))
    found = [to_view(row, principal) for row in rows[: LIMIT + 1]]
    items = tuple(found[:LIMIT])
    return Page(items=items, next=order.cursor(items[-1]) if len(found) > LIMIT else None)


def in_doubt(principal: Principal | None, *, q: str = "") -> tuple[Approval, ...]:
    """List the calls in doubt that this person may resolve, oldest first. Raises InvalidInput naming `q`."""
    rows = Request.objects.filter(
        request_rules.decidable_requests(principal),
        filters.condition(q, principal.person if principal else ""),
        status=Request.Status.PENDING,
        kind=GateKind.IN_DOUBT,
    )
    return tuple(to_view(row, principal) for row in rows.order_by("created_at", "id")[:LIMIT])


def previous_and_next(
    principal: Principal | None, item: Approval, q: str = "", order: Order = DEFAULT
) -> tuple[UUID | None, UUID | None]:
    """Return the requests before and after an approval in the list `mine`, even if the list does not contain it.

    Raises InvalidInput naming `q`.
    """
    rows = Request.objects.filter(
        request_rules.decidable_requests(principal),
        filters.condition(q, principal.person if principal else ""),
        ~Q(kind=GateKind.IN_DOUBT),
        status=Request.Status.PENDING,
    ).exclude(pk=item.id)
    later = order.after(item)
    before, after = _values(
        "id",
        order.ordered(rows, backwards=True).exclude(later).values("id")[:1],
        order.ordered(rows).filter(later).values("id")[:1],
    )
    return before, after


def closed(principal: Principal | None, known: Collection[UUID]) -> tuple[Approval, ...]:
    """Return the requests among `known`, the rows on a reader's screen, that are no longer pending."""
    rows = Request.objects.filter(request_rules.readable_requests(principal), pk__in=known)
    return tuple(to_view(row, principal) for row in rows.exclude(status=Request.Status.PENDING))


def last_closed(principal: Principal | None) -> Approval | None:
    """Return the request closed last, None if there is none."""
    rows = Request.objects.filter(
        request_rules.readable_requests(principal), decided_at__isnull=False
    )
    row = rows.order_by("-decided_at", "-id").first()
    return None if row is None else to_view(row, principal)


def _count_text(count: int, most: int = MAX_COUNT) -> str:
    return f"{count:,}" if count <= most else f"{most:,}+"

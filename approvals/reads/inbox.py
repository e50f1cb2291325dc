"""Reads the lists of the inbox: requests a person may decide, and pending requests of others.

Pending requests are sorted by deadline, unless the reader chose another order. Another order, and the number of a saved
view, look only at the WINDOW requests with the next deadlines: there may be a million.
"""

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain
from typing import Any
from uuid import UUID

from django.core.exceptions import EmptyResultSet
from django.db import connection
from django.db.models import Q, QuerySet

from approvals.models import IN_DOUBT, OF_CALL, Approval
from approvals.reads import filters, pending_ages, usual
from approvals.reads.approval_views import ApprovalView, to_view
from approvals.reads.orders import Order
from approvals.rights import approval_rights
from approvals.rights.principals import Principal
from approvals.rules.argument_values import PastValues
from approvals.rules.unusual_values import UnusualKind
from runtime.core.values.enums import Risk
from runtime.errors import InvalidInput
from runtime.reads.run_rows import Page

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
    """The numbers of pending requests, without the search: `mine`, the calls in doubt among them, and `for_others`.

    MAX_COUNT + 1 means more than MAX_COUNT. `by_search` holds the numbers of further searches as text, up to MAX_FOUND;
    None for a search that is refused. "3+" has three among the requests that were looked at, of more.
    """

    mine: int
    in_doubt: int
    for_others: int
    by_search: tuple[str | None, ...] = ()

    @property
    def mine_text(self) -> str:
        """The number of requests for this person, as text."""
        return _format_count(self.mine)

    @property
    def for_others_text(self) -> str:
        """The number of requests for others, as text."""
        return _format_count(self.for_others)

    @property
    def only_in_doubt(self) -> bool:
        """Whether all requests for this person are calls in doubt."""
        return self.mine == self.in_doubt <= MAX_COUNT


def count_requests(
    principal: Principal | None, searches: Sequence[tuple[View, str]] = ()
) -> Counts:
    """Count the pending requests for this person and for others, and those of each view and search, in one query."""
    pending = Approval.objects.filter(
        approval_rights.match_readable_requests(principal), status=Approval.Status.PENDING
    )
    decidable = pending.filter(approval_rights.match_decidable_requests(principal))
    further = list[QuerySet[Approval] | None]()
    for view, q in searches:
        try:
            further.append(_select_pending(principal, view, q))
        except InvalidInput:
            further.append(None)
    short = [
        rows is not None and filters.is_short(q)
        for rows, (_, q) in zip(further, searches, strict=True)
    ]
    lists = (
        decidable,
        decidable.filter(IN_DOUBT),
        pending.filter(approval_rights.match_undecidable_requests(principal)),
    )
    exact = [rows for rows, few in zip(further, short, strict=True) if rows is not None and few]
    other = [rows for rows, few in zip(further, short, strict=True) if rows is not None and not few]
    counted = [*((rows, MAX_COUNT) for rows in lists), *((rows, MAX_FOUND) for rows in exact)]
    (mine, unknown, for_others, *numbers), (looked_at, *some) = _count_rows(counted, pending, other)
    is_complete = looked_at < pending_ages.WINDOW
    exact_texts = iter([_format_count(number, MAX_FOUND) for number in numbers])
    window_texts = iter(
        [_format_count(number, MAX_FOUND, is_complete=is_complete) for number in some]
    )
    return Counts(
        mine=mine,
        in_doubt=unknown,
        for_others=for_others,
        by_search=tuple(
            None if rows is None else next(exact_texts if few else window_texts)
            for rows, few in zip(further, short, strict=True)
        ),
    )


def _select_pending(principal: Principal | None, view: View, q: str) -> QuerySet[Approval]:
    """Select the pending requests of a view, calls in doubt included. Raise InvalidInput naming `q`."""
    match view:
        case View.MINE:
            condition = approval_rights.match_decidable_requests(principal)
        case View.OTHERS:
            condition = approval_rights.match_undecidable_requests(principal)
        case View.ALL:
            condition = Q()
    readable = approval_rights.match_readable_requests(principal)
    return Approval.objects.filter(
        readable,
        condition,
        filters.build_condition(q, principal.person if principal else ""),
        status=Approval.Status.PENDING,
    )


def _count_rows(
    lists: Sequence[tuple[QuerySet[Approval], int]],
    rows: QuerySet[Approval],
    inside: Sequence[QuerySet[Approval]],
) -> tuple[list[int], list[int]]:
    """Count in one query the rows of each list, up to its limit + 1, and those inside of the window of `rows`.

    Of the window it counts first all rows, then those of each list, up to MAX_FOUND + 1.
    """
    sql, parameters_of_lists = pending_ages.select_values(
        "count(*)", *(rows.values("pk")[: limit + 1] for rows, limit in lists)
    )
    window = "NULL"
    if inside:
        with suppress(EmptyResultSet):
            numbers, parameters_of_counts = pending_ages.select_values(
                "count(*)",
                Approval.objects.values("pk"),
                *(inner_rows.values("pk")[: MAX_FOUND + 1] for inner_rows in inside),
            )
            first, parameters = pending_ages.build_window_sql(rows)
            window = f"({first} SELECT ARRAY[{numbers}])"
            parameters_of_lists += [*parameters, *parameters_of_counts]
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {sql}, {window}", parameters_of_lists)
        *counts_of_lists, of_window = cursor.fetchone()
    some = of_window or [0] * (len(inside) + 1)
    return [count or 0 for count in counts_of_lists], [count or 0 for count in some]


def read_page(
    principal: Principal | None,
    *,
    view: View,
    q: str = "",
    order: Order = DEFAULT,
    cursor: str | None = None,
) -> Page[ApprovalView]:
    """Read one page of a list. `mine` excludes calls in doubt, see `in_doubt`. Raise InvalidInput naming either."""
    rows = _select_pending(principal, view, q)
    if view == View.MINE:
        rows = rows.exclude(IN_DOUBT)
    in_order = order.sort_rows(rows if order.is_by_deadline else Approval.objects.all())
    if cursor is not None:
        in_order = in_order.filter(order.select_after_cursor(cursor))
    first = in_order[: LIMIT + 1]
    selected: Iterable[Approval] = first
    if not order.is_by_deadline:  # no index has this order, so it is that of the window
        try:
            selected = pending_ages.read_in_window(rows, first)
        except EmptyResultSet:
            selected = ()
    approvals = [to_view(approval, principal) for approval in selected]
    items = tuple(approvals[:LIMIT])
    return Page(
        items=items, next=order.encode_cursor(items[-1]) if len(approvals) > LIMIT else None
    )


def list_requested_by(principal: Principal, limit: int) -> tuple[ApprovalView, ...]:
    """Return the first pending requests of the runs of this person, the oldest first."""
    rows = Approval.objects.filter(requester=principal.person, status=Approval.Status.PENDING)
    return tuple(
        to_view(approval, principal) for approval in rows.order_by("created_at", "id")[:limit]
    )


def find(principal: Principal | None, *, q: str, limit: int) -> tuple[ApprovalView, ...]:
    """Find pending requests among the WINDOW readable ones with the next deadlines. Raises InvalidInput naming `q`."""
    rows = Approval.objects.filter(
        approval_rights.match_readable_requests(principal), status=Approval.Status.PENDING
    )
    condition = filters.build_condition(q, principal.person if principal else "")
    matching = DEFAULT.sort_rows(Approval.objects.filter(condition))[:limit]
    try:
        requests = pending_ages.read_in_window(rows, matching)
    except EmptyResultSet:
        return ()
    return tuple(to_view(approval, principal) for approval in requests)


def list_in_doubt(principal: Principal | None, *, q: str = "") -> tuple[ApprovalView, ...]:
    """List the calls in doubt that this person may resolve, oldest first. Raises InvalidInput naming `q`."""
    rows = Approval.objects.filter(
        approval_rights.match_decidable_requests(principal),
        filters.build_condition(q, principal.person if principal else ""),
        IN_DOUBT,
        status=Approval.Status.PENDING,
    )
    return tuple(
        to_view(approval, principal) for approval in rows.order_by("created_at", "id")[:LIMIT]
    )


def find_previous_and_next(
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
        approval_rights.match_decidable_requests(principal),
        filters.build_condition(q, principal.person if principal else ""),
        ~IN_DOUBT,
        status=Approval.Status.PENDING,
    ).exclude(pk__in=[approval.id, *without])
    later, window, window_parameters = order.after(approval), "", tuple[Any, ...]()
    try:
        if not order.is_by_deadline:
            window, window_parameters = pending_ages.build_window_sql(rows)
            rows = Approval.objects.all()
    except EmptyResultSet:
        return None, None
    sql, parameters = pending_ages.select_values(
        "id",
        order.sort_rows(rows, backwards=True).exclude(later).values("id")[:1],
        order.sort_rows(rows).filter(later).values("id")[:1],
    )
    with connection.cursor() as cursor:
        cursor.execute(f"{window} SELECT {sql}", [*window_parameters, *parameters])
        before, after = cursor.fetchone()
    return before, after


def list_closed(
    principal: Principal | None, listed_ids: Collection[UUID]
) -> tuple[ApprovalView, ...]:
    """Return the requests among `listed_ids`, the rows on a reader's screen, that are no longer pending."""
    rows = Approval.objects.filter(
        approval_rights.match_readable_requests(principal), pk__in=listed_ids
    )
    return tuple(
        to_view(approval, principal) for approval in rows.exclude(status=Approval.Status.PENDING)
    )


def find_last_closed(principal: Principal | None) -> ApprovalView | None:
    """Return the request closed last, None if there is none."""
    rows = Approval.objects.filter(
        approval_rights.match_readable_requests(principal), decided_at__isnull=False
    )
    approval = rows.order_by("-decided_at", "-id").first()
    return None if approval is None else to_view(approval, principal)


def _format_count(count: int, limit: int = MAX_COUNT, *, is_complete: bool = True) -> str:
    """Return the number as text. It is not `is_complete` if only some rows were looked at."""
    return f"{count:,}" if is_complete and count <= limit else f"{min(count, limit):,}+"


LOOKED_AT = 20  # calls of each risk, those with the next deadlines
NEAR = 200  # requests with the next deadlines, among which calls at medium risk are looked for: no index has these
MOST = 3  # calls of each risk that are listed before all others
ALARMING = frozenset(
    {UnusualKind.LOOK_ALIKE, UnusualKind.INVISIBLE, UnusualKind.LETTERS, UnusualKind.SCALE}
)


def read_important_and_doubts(
    principal: Principal | None, *, doubts: bool
) -> tuple[tuple[ApprovalView, ...], tuple[ApprovalView, ...]]:
    """Return the first calls at high and medium risk that this person may decide, and with `doubts` those in doubt.

    One query reads all.
    """
    rows = Approval.objects.filter(
        approval_rights.match_readable_requests(principal),
        approval_rights.match_decidable_requests(principal),
        status=Approval.Status.PENDING,
    )
    near = Approval.objects.filter(pk__in=DEFAULT.sort_rows(rows).values("pk")[:NEAR])
    high = DEFAULT.sort_rows(rows.filter(OF_CALL, risk=Risk.HIGH))[:LOOKED_AT]
    medium = DEFAULT.sort_rows(near.filter(OF_CALL, risk=Risk.MEDIUM))[:LOOKED_AT]
    unknown = rows.filter(IN_DOUBT).order_by("created_at", "id")[:LIMIT]
    selected = high.union(medium, *([unknown] if doubts else []), all=True)
    views = [to_view(approval, principal) for approval in selected]
    return (
        tuple(view for view in views if view.is_of_call),
        tuple(view for view in views if view.is_in_doubt),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """The requests before and after a request in its list. `past` are its tool's past calls if they were read too."""

    before: UUID | None = None
    after: UUID | None = None
    past: PastValues | None = None


def find_list_neighbours(principal: Principal | None, approval: ApprovalView) -> Neighbours:
    """Return the requests before and after a request in the whole list, with the calls that it lists first."""
    risky, _ = read_important_and_doubts(principal, doubts=False)
    odd = usual.find_unusual_in_list(risky, principal, page_request=approval)
    first = [view.id for view in pick_important(risky, odd)]
    if approval.id not in first:
        before, after = find_previous_and_next(principal, approval, without=first)
        before = before or next(reversed(first), None)
        return Neighbours(before=before, after=after, past=odd.past)
    index = first.index(approval.id)
    before = first[index - 1] if index else None
    if index + 1 < len(first):
        after = first[index + 1]
    else:
        listed = read_page(principal, view=View.MINE).items
        after = next((view.id for view in listed if view.id not in first), None)
    return Neighbours(before=before, after=after, past=odd.past)


def find_next_request(approval: ApprovalView) -> UUID | None:
    """Return what the whole list shows after a request that was just decided: the next one, else the one before."""
    risky, _ = read_important_and_doubts(approval.reader, doubts=False)
    pending = copy(approval.stored)
    pending.status = Approval.Status.PENDING
    calls = (*risky, replace(approval, stored=pending))
    first = [
        view.id
        for view in pick_important(calls, usual.find_unusual_in_list(calls, approval.reader))
    ]
    if approval.id not in first:
        before, after = find_previous_and_next(approval.reader, approval, without=first)
        return after or before or next(reversed(first), None)
    first.remove(approval.id)
    return next(
        iter(first or [view.id for view in read_page(approval.reader, view=View.MINE).items]), None
    )


def pick_important(
    items: Iterable[ApprovalView], odd: usual.UnusualByApproval
) -> tuple[ApprovalView, ...]:
    """Return the calls to look at first: MOST at high risk with an odd value, MOST at medium risk with an alarming one.

    The oddest of each risk comes first.
    """
    calls = [
        approval
        for approval in items
        if (oddities := odd.by_request.get(approval.id, ()))
        and (
            approval.risk == Risk.HIGH
            or (approval.risk == Risk.MEDIUM and oddities[0].kind in ALARMING)
        )
    ]
    calls.sort(key=lambda approval: odd.by_request[approval.id][0].weight)
    by_risk = (
        [call for call in calls if call.risk == risk][:MOST] for risk in (Risk.HIGH, Risk.MEDIUM)
    )
    return tuple(chain.from_iterable(by_risk))

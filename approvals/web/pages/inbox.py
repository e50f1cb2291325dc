"""The inbox: pending requests of this person and of others, a sentence each; and the requests of one's own runs."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import messages
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from approvals.people import preferences
from approvals.reads import deciders, filters, history, marks, usual
from approvals.reads import inbox as lists
from approvals.reads.approval_views import ApprovalView
from approvals.reads.filters import DecisionFilter
from approvals.reads.inbox import View
from approvals.reads.orders import Grouping, HeadedRows, Order, Sort
from approvals.reads.pending_ages import WINDOW
from approvals.rights import principals
from approvals.rights.principals import Principal, Scope
from approvals.web import list_position as places
from approvals.web.list_position import ListPosition, RunListPosition, read_order
from approvals.web.pages.history import build_decision_rows
from runtime.core.values.enums import GateKind, Risk
from runtime.errors import InvalidInput
from runtime.reads import run_rows
from runtime.reads.run_rows import Page
from runtime.web.requests import is_htmx, read_actor, read_text, redirect_with, render_live, users

MAX_TYPED = 200  # characters of a refused name that come back
MAX_KNOWN = 2 * lists.LIMIT
OWN = (
    ("Claimed by me", ListPosition(q="claimed:me")),
    ("Handed to me", ListPosition(q="handed:me")),
    ("Questions", ListPosition(q=f"kind:{GateKind.QUESTION}")),
)


@users.guard_page
def show_inbox(request: HttpRequest) -> HttpResponse:
    """Show the inbox; for a page that is already open, only its list and the outcomes of `known` rows.

    `more` says that the open list has a next page.
    """
    principal = principals.find_principal(principals.make_actor(request.user))
    live, q = is_htmx(request), request.GET.get("q", "").strip()
    listed = request.GET.get("known", "").split(",") if live else []  # rows on the reader's screen
    try:
        view = View(request.GET.get("view", View.MINE))
        known_ids = [UUID(text) for text in listed if text][:MAX_KNOWN]
    except ValueError as exc:
        raise Http404 from exc
    position = ListPosition(view=view, q=q, order=read_order(request.GET))
    views = [] if live else _list_views(request)
    counts = lists.count_requests(principal, [(tab.position.view, tab.position.q) for tab in views])
    context: dict[str, Any] = {
        "view": view,
        "q": q,
        "counts": counts,
        "order": position.order,
        "total": counts.mine_text if view == View.MINE else counts.for_others_text,
        "cut": _cut(position, counts),
    }
    context |= _read_list(request, principal, position, counts, frozenset(known_ids))
    if live:
        context["closed"] = lists.list_closed(principal, known_ids)
    else:
        is_admin = principal is not None and principal.has(Scope.ADMIN)
        tabs = [
            replace(tab, number=number or "")
            for tab, number in zip(views, counts.by_search, strict=True)
        ]
        context |= {
            "section": "inbox",
            "max_filter": filters.MAX_LENGTH,
            "sorts": list(Sort),
            "groupings": list(Grouping),
            "saved": tabs[len(OWN) :],
            "own_tabs": [
                tab
                for tab in tabs[: len(OWN)]
                if tab.number != "0" or tab.query == context["list_query"]
            ],
            "is_saved": any(tab.query == context["list_query"] for tab in tabs),
            "terms": _suggest_terms(context["items"]),
            "operators": filters.OPERATORS,
            "max_view": preferences.MAX_NAME,
            "tabs": {tab: replace(position, view=tab).query or request.path for tab in View},
            # An admin reads every run.
            "alarms": run_rows.count_quarantined(Q()) if is_admin else 0,
        }
    status = 422 if context["problem"] else 200
    answer = render_live(request, "approvals/inbox.html", context, status, "list")
    answer["HX-Replace-Url"] = f"{request.path}{position.query}"  # without empty parameters
    return answer


@users.action
def save_view(request: HttpRequest) -> HttpResponse:
    """Save the list that is shown, of requests or of runs, under a name of this person's."""
    name = read_text(request.POST, "name")
    of_runs = request.POST.get("page") == preferences.RUNS
    position: ListPosition | RunListPosition = (
        places.parse_run_position if of_runs else places.parse_position
    )(request.POST)
    page = preferences.RUNS if of_runs else preferences.INBOX
    to = f"{reverse(page)}{position.query}"
    try:
        preferences.save_view(request.user.get_username(), name, position.parameters, page)
    except InvalidInput as exc:
        messages.error(request, f"Not saved: the {exc.field} {exc.detail}.")
        query = urlencode({"saving": name[:MAX_TYPED]})
        return redirect(f"{to}{'&' if position.query else '?'}{query}")
    return redirect_with(request, f"Saved: {name.strip()}", to)


@users.action
def delete_view(request: HttpRequest, view: UUID) -> HttpResponse:
    """Delete a view of this person."""
    preferences.delete_view(request.user.get_username(), view)
    return redirect("runs" if request.POST.get("page") == preferences.RUNS else "inbox")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tab:
    """A list under a name, with the number of its requests; `id` is that of a saved view."""

    id: UUID | None
    name: str
    position: ListPosition
    number: str = ""

    @property
    def query(self) -> str:
        """The query of its address."""
        return self.position.query or "?"


FIRST = "Unusual: look at these first"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroup:
    """Consecutive rows of one path and one requester, whose subtitle is shown once."""

    path: tuple[str, ...]
    requester: str
    items: tuple[ApprovalView, ...]

    @property
    def is_folded(self) -> bool:
        """Whether there is more than one row."""
        return len(self.items) > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The rows of a page: `items` in the order of the list, `first` those that come before all, of any later page too.

    `is_unchanged` says that an open page has all of them already; then `odd` is empty.
    """

    items: tuple[ApprovalView, ...]
    odd: usual.UnusualByApproval
    first: tuple[ApprovalView, ...] = ()
    is_unchanged: bool = False

    @property
    def all(self) -> tuple[ApprovalView, ...]:
        """The rows, each once."""
        here = {approval.id for approval in self.items}
        return (*(approval for approval in self.first if approval.id not in here), *self.items)

    def groups(self, order: Order) -> list[tuple[str, int, list[RowGroup]]]:
        """Return the title of each group, the number of its rows, and its rows in folds; none if unchanged."""
        if self.is_unchanged:
            return []
        first = {approval.id for approval in self.first}
        groups = order.groups([approval for approval in self.items if approval.id not in first])
        if self.first:
            groups.insert(0, HeadedRows(title=FIRST, items=self.first))
        rows = list[tuple[str, int, list[RowGroup]]]()
        for group in groups:
            runs_of = groupby(group.items, key=lambda approval: (approval.path, approval.requester))
            folds = [
                RowGroup(path=path, requester=requester, items=tuple(items))
                for (path, requester), items in runs_of
            ]
            rows.append((group.title, len(group.items), folds))
        return rows


def arrange_rows(
    principal: Principal | None,
    items: tuple[ApprovalView, ...],
    risky: Collection[ApprovalView],
    known_ids: Collection[UUID],
    *,
    leads: bool,
    is_unchanged: bool,
) -> Rows:
    """Find the odd values of a page, and the rows that come first if it `leads` the whole list.

    `risky` are calls at high and medium risk of all pages. `is_unchanged` says that an open page knows the items of
    this one.
    """
    here = {approval.id for approval in items}
    elsewhere = [approval for approval in risky if approval.id not in here]
    if is_unchanged:
        new = [approval for approval in elsewhere if approval.id not in known_ids]
        if not lists.pick_important(new, usual.find_unusual_in_list(new, principal)):
            listed_first = tuple(approval for approval in elsewhere if approval.id in known_ids)
            return Rows(
                items=items,
                odd=usual.find_unusual_in_list((), principal),
                first=listed_first,
                is_unchanged=True,
            )
    odd = usual.find_unusual_in_list((*items, *elsewhere), principal)
    first = lists.pick_important((*items, *elsewhere), odd) if leads else ()
    return Rows(items=items, odd=odd, first=first)


WAITING = 20  # requests of the page
WITH_PEOPLE = 5  # of these, with the people who could decide: their rights are verified
DECIDED, RUNS, NAMES = 20, 10, 3  # NAMES are people that a request names


@users.guard_page
def show_own_requests(request: HttpRequest) -> HttpResponse:
    """Show what became of this person's requests."""
    actor = read_actor(request)
    principal = principals.find_principal(actor)
    waiting = lists.list_requested_by(principal, WAITING + 1) if principal else ()
    decided = history.read_page(principal, DecisionFilter(by=actor.person), limit=DECIDED)
    pending = list[tuple[ApprovalView, str]]()  # each with the first people who could decide it
    for number, item in enumerate(waiting[:WAITING]):
        people = deciders.read_outlook(item.stored).people if number < WITH_PEOPLE else ()
        names = ", ".join(people[:NAMES])
        pending.append((item, f"{names} and others" if len(people) > NAMES else names))
    context = {
        "section": "mine",
        "pending": pending,
        "more_wait": len(waiting) > WAITING,
        "most_waiting": WAITING,
        "with_people": WITH_PEOPLE,
        "decided": list(build_decision_rows(decided.items, principal)),
        "more_decided": decided.next is not None,
        "runs": run_rows.read_runs_page(Q(requester=actor.person), limit=RUNS).items,
        "person": actor.person,
    }
    return render(request, "approvals/mine.html", context)


def _list_views(request: HttpRequest) -> list[Tab]:
    """Return the lists of what this person claims and was handed, then their saved views."""
    saved = preferences.list_views(request.user.get_username())
    return [
        *(Tab(id=None, name=name, position=position) for name, position in OWN),
        *(
            Tab(id=view.id, name=view.name, position=places.parse_position(view.place))
            for view in saved
        ),
    ]


def _suggest_terms(items: Sequence[ApprovalView]) -> list[str]:
    """Return the filters that make sense for these rows, to be suggested."""
    terms = [f"risk:{risk}" for risk in Risk]
    terms += ["claimed:me", "claimed:no", "handed:me"]
    terms += [f"kind:{kind}" for kind in sorted({approval.kind for approval in items})]
    for operator, names in filters.collect_names(items).items():
        terms += [f'{operator}:"{name}"' if " " in name else f"{operator}:{name}" for name in names]
    return terms


def _read_list(
    request: HttpRequest,
    principal: Principal | None,
    position: ListPosition,
    counts: lists.Counts,
    known_ids: frozenset[UUID],
) -> dict[str, Any]:
    """Return the requested rows, or the error of the search. An open page gets none if it has all of them already."""
    view, q = position.view, position.q
    cursor, problem = request.GET.get("cursor"), None
    page: Page[ApprovalView] = Page(items=(), next=None)
    unknown, risky = tuple[ApprovalView, ...](), tuple[ApprovalView, ...]()
    leads = position == ListPosition() and cursor is None
    try:
        if view != View.MINE or not counts.only_in_doubt or q or cursor:
            page = lists.read_page(principal, view=view, q=q, order=position.order, cursor=cursor)
        if leads and page.next:
            risky, unknown = lists.read_important_and_doubts(
                principal, doubts=bool(counts.in_doubt)
            )
        elif view == View.MINE and counts.in_doubt and cursor is None:
            unknown = lists.list_in_doubt(principal, q=q)
    except InvalidInput as exc:
        if exc.field != "q":
            raise Http404(exc.detail) from exc
        problem = exc
    nothing = not (page.items or unknown or q or cursor or problem)
    has_next = "more" in request.GET
    # Of an open list with a next page, rows after its last one are on that page.
    new = [approval.id not in known_ids for approval in (*unknown, *page.items)]
    while has_next and new and new[-1]:
        new.pop()
    is_unchanged = bool(known_ids) and not any(new)
    rows = arrange_rows(
        principal, page.items, risky, known_ids, leads=leads, is_unchanged=is_unchanged
    )
    return {
        "is_unchanged": rows.is_unchanged,
        "groups": rows.groups(position.order),
        "items": rows.all,
        "row_count": len(rows.all) + len(unknown),
        "first": rows.first,
        "odd": rows.odd,
        "marks": marks.read_marks([approval.id for approval in (*rows.all, *unknown)]),
        "next": page.next,
        "in_doubt": unknown,
        "problem": problem,
        "last": lists.find_last_closed(principal) if nothing and view == View.MINE else None,
        "first_page": cursor is None,
        "keep": _build_query(position.parameters),
        "parameters": position.parameters,
        "saving": request.GET.get("saving", ""),
        "list_query": replace(position, q="" if problem else q).query,
        "unfiltered": replace(position, q="").query or request.path,
        "source": f"{request.path}?{_build_query(position.parameters)}{_build_query({'cursor': cursor or ''})}",
    }


def _cut(position: ListPosition, counts: lists.Counts) -> str:
    """Say that another order than that by deadline has only the first requests of a very long list."""
    numbers = {View.MINE: counts.mine, View.OTHERS: counts.for_others}
    number = numbers.get(position.view, counts.mine + counts.for_others)
    if position.order.is_by_deadline or number <= WINDOW:
        return ""
    return f" This order has only the {WINDOW:,} of them with the next deadlines."


def _build_query(parameters: Mapping[str, str]) -> str:
    """Return the query of these parameters, without empty ones, ready for further ones."""
    query = urlencode({name: value for name, value in parameters.items() if value})
    return f"{query}&" if query else ""

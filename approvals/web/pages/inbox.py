"""The inbox: pending requests of this person and of others, one sentence each, and requests closed today."""

from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.cache import patch_vary_headers
from django.views.decorators.http import require_safe

from approvals.permissions import principals
from approvals.permissions.principals import Principal
from approvals.permissions.scopes import Scope
from approvals.queries import filters, usual
from approvals.queries import inbox as lists
from approvals.queries.inbox import View
from approvals.queries.requests import Approval
from approvals.web.pages.place import Place
from runtime.errors import InvalidInput
from runtime.queries import outcomes, runs, time_limits
from runtime.queries.outcomes import CallKey, Outcome
from runtime.queries.runs import Page

MAX_KNOWN = 2 * lists.LIMIT
_LET_START = ("approved", "answered")


@require_safe
@login_required
def inbox(request: HttpRequest) -> HttpResponse:
    """Show the inbox; for a page that is already open, only its list and the outcomes of `known` rows."""
    principal = principals.principal_of(principals.actor_of(request.user))
    view, q = _view(request), request.GET.get("q", "").strip()
    live = "HX-Request" in request.headers
    counts = lists.counts(principal)
    context: dict[str, Any] = {"view": view, "q": q, "counts": counts}
    context |= _list(request, principal, view, q, counts)
    if live and view != View.DECIDED:  # in that view all rows are closed
        context["closed"] = lists.closed(principal, _known(request))
    elif not live:
        is_admin = principal is not None and principal.has(Scope.ADMIN)
        context |= {
            "section": "inbox",
            "max_filter": filters.MAX_LENGTH,
            # An admin reads every run.
            "alarms": runs.quarantined(Q()) if is_admin else 0,
        }
    status = 422 if context["problem"] else 200
    answer = render(
        request,
        "approvals/inbox.html#list" if live else "approvals/inbox.html",
        context,
        status=status,
    )
    patch_vary_headers(answer, ["HX-Request"])
    return answer


def _list(
    request: HttpRequest, principal: Principal | None, view: View, q: str, counts: lists.Counts
) -> dict[str, Any]:
    """Return the requested rows, or the error of the search."""
    cursor, problem = request.GET.get("cursor"), None
    page: Page[Approval] = Page(items=(), next=None)
    unknown = tuple[Approval, ...]()
    try:
        if view != View.MINE or not counts.only_in_doubt or q or cursor:
            page = lists.page(principal, view=view, q=q, cursor=cursor)
        if view == View.MINE and counts.in_doubt and cursor is None:
            unknown = lists.in_doubt(principal, q=q)
    except InvalidInput as exc:
        if exc.field != "q":
            raise Http404(exc.detail) from exc
        problem = exc
    nothing = not (page.items or unknown or q or cursor or problem)
    return {
        "groups": [] if view == View.DECIDED else lists.groups(page.items),
        "items": page.items,
        "no_outcomes": view == View.DECIDED and time_limits.is_used_up(),
        "decided": _with_outcomes(page.items) if view == View.DECIDED else [],
        "odd": usual.of_requests(page.items, principal),
        "next": page.next,
        "in_doubt": unknown,
        "problem": problem,
        "last": lists.last_closed(principal) if nothing and view == View.MINE else None,
        "first_page": cursor is None,
        "keep": _query(view, q),
        "place": Place(view=view, q="" if problem else q).query,
        "source": f"{request.path}?{_query(view, q)}{_query_of(cursor)}",
    }


def _with_outcomes(items: tuple[Approval, ...]) -> list[tuple[Approval, Outcome | None]]:
    """Pair each request with the outcome of its call; None if the call did not start or no outcome is stored."""
    places = {
        item.id: CallKey(run=item.run, frame=item.frame, call=item.call)
        for item in items
        if item.call and item.status in _LET_START and not item.tampered
    }
    found = {} if time_limits.is_used_up() else outcomes.outcomes(places.values())
    return [(item, found.get(places[item.id]) if item.id in places else None) for item in items]


def _view(request: HttpRequest) -> View:
    try:
        return View(request.GET.get("view", View.MINE))
    except ValueError as exc:
        raise Http404 from exc


def _known(request: HttpRequest) -> list[UUID]:
    """Return the rows on the reader's screen, as the page lists them."""
    try:
        return [UUID(one) for one in request.GET.get("known", "").split(",") if one][:MAX_KNOWN]
    except ValueError as exc:
        raise Http404 from exc


def _query(view: View, q: str) -> str:
    """Return the query of the list without its page, ready for further parameters."""
    chosen = {"view": view if view != View.MINE else "", "q": q}
    found = urlencode({name: value for name, value in chosen.items() if value})
    return f"{found}&" if found else ""


def _query_of(cursor: str | None) -> str:
    return f"{urlencode({'cursor': cursor})}&" if cursor else ""

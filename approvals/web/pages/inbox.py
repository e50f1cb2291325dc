"""The inbox: pending requests of this person and of others, one sentence each."""

from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
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
from approvals.web.zone import of_reader
from runtime.errors import InvalidInput
from runtime.queries import runs
from runtime.queries.runs import Page

MAX_KNOWN = 2 * lists.LIMIT


@require_safe
@login_required
def inbox(request: HttpRequest) -> HttpResponse:
    """Show the inbox; for a page that is already open, only its list and the outcomes of `known` rows."""
    principal = principals.principal_of(principals.actor_of(request.user))
    if request.GET.get("view") == "decided":  # as the release before links to it
        return redirect(
            f"{reverse('history')}?since={timezone.localdate(timezone=of_reader(request))}"
        )
    view, q = _view(request), request.GET.get("q", "").strip()
    live = "HX-Request" in request.headers
    counts = lists.counts(principal)
    context: dict[str, Any] = {"view": view, "q": q, "counts": counts}
    context |= _list(request, principal, view, q, counts)
    if live:
        context["closed"] = lists.closed(principal, _known(request))
    else:
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
        "groups": lists.groups(page.items),
        "items": page.items,
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

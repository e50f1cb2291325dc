"""The page with the list of runs."""

from urllib.parse import urlencode

from django.contrib.auth.decorators import login_required
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.cache import patch_vary_headers
from django.views.decorators.http import require_safe

from runtime.core.continuation import RunStatus
from runtime.errors import InvalidInput
from runtime.ports import wiring
from runtime.queries import filters
from runtime.queries import runs as run_queries
from runtime.queries.filters import MAX_SEARCH
from runtime.web.pages import query_params
from runtime.web.requests import actor_of

TABS = (
    ("", "All"),
    ("people", "Waiting for people"),
    ("working", "Working"),
    ("failed", "Failed"),
    ("finished", "Finished"),
    ("cancelled", "Cancelled"),
)


@require_safe
@login_required
def runs(request: HttpRequest) -> HttpResponse:
    """List the runs that the actor may read, newest first, filtered by `tab`, `status` and `q`."""
    actor, access = actor_of(request), wiring.access()
    readable, problem = access.readable_runs(actor), None
    is_admin = access.reads_continuations(actor)
    tab = query_params.choice(request, "tab", tuple(filters.TABS))
    status = query_params.choice(request, "status", tuple(RunStatus))
    try:
        search = query_params.search(request)
        where = filters.filter_runs(readable, tab=tab, status=status, search=search)
    except InvalidInput as exc:
        problem, search, where = exc, request.GET["q"], Q(pk__in=[])
    chosen = {name: text for name, text in (("tab", tab), ("status", status)) if text}
    kept = {**chosen, "q": search} if search and not problem else chosen
    context = {
        "section": "runs",
        "page": run_queries.runs_page(where, cursor=query_params.cursor(request)),
        "first_page": "cursor" not in request.GET,
        "tabs": [_tab(name, label, tab, status, search) for name, label in TABS],
        "tab": tab,
        "status": status,
        "search": search,
        "filters": chosen,
        "problem": problem,
        "longest": MAX_SEARCH,
        "keep": f"{urlencode(kept)}&" if kept else "",
        "source": request.get_full_path(),
        "is_admin": is_admin,
        "alarms": run_queries.quarantined(readable) if is_admin else 0,
    }
    template = "runs/runs.html#list" if query_params.is_htmx(request) else "runs/runs.html"
    response = render(request, template, context, status=422 if problem else 200)
    patch_vary_headers(response, ["HX-Request"])
    return response


def _tab(name: str, label: str, tab: str, status: str, search: str) -> dict[str, object]:
    """Return a tab, its address including the search, and whether it is the current one."""
    query = urlencode({key: text for key, text in (("tab", name), ("q", search)) if text})
    return {"label": label, "query": f"?{query}", "here": name == tab and not status}

"""The page with the list of runs, and the way from two of its rows to their comparison."""

from datetime import date, datetime, timedelta
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.cache import patch_vary_headers
from django.views.decorators.http import require_safe

from runtime.core.continuation import RunStatus
from runtime.errors import InvalidInput
from runtime.ports import wiring
from runtime.queries import outcomes
from runtime.queries import runs as run_queries
from runtime.queries.lists import filters
from runtime.queries.lists.filters import MAX_SEARCH
from runtime.queries.runs import Page, RunLine
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
OLDEST = "oldest"


@require_safe
@login_required
def runs(request: HttpRequest) -> HttpResponse:
    """List the runs that the actor may read, filtered by tab, status, search and day of the start."""
    actor, access = actor_of(request), wiring.access()
    readable, problem = access.readable_runs(actor), None
    is_admin = access.reads_continuations(actor)
    chosen = _chosen(request)
    try:
        search = query_params.search(request)
        where = _condition(readable, chosen, search)
    except InvalidInput as exc:
        problem, search, where = exc, request.GET.get("q", ""), Q(pk__in=[])
    kept = {**chosen, "q": search} if search and not problem else chosen
    page = run_queries.runs_page(
        where, cursor=query_params.cursor(request), oldest=chosen.get("order") == OLDEST
    )
    context = {
        "section": "runs",
        "page": page,
        "rows": _with_failed_calls(page),
        "first_page": "cursor" not in request.GET,
        "tabs": [_tab(name, label, chosen, search) for name, label in TABS],
        "status": chosen.get("status", ""),
        "search": search,
        "mine": search == f"by:{actor.person}",
        "chosen": chosen,
        "filtered": bool(search or set(chosen) - {"order"}),
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


@require_safe
@login_required
def compare_chosen(request: HttpRequest) -> HttpResponse:
    """Redirect to the comparison of the two rows that were ticked."""
    try:
        ids = list(dict.fromkeys(UUID(text) for text in request.GET.getlist("run")))
    except ValueError:
        ids = []
    if len(ids) == 2:
        return redirect("compare", *ids)
    messages.error(request, "Select exactly two runs to compare.")
    return redirect("runs")


def _chosen(request: HttpRequest) -> dict[str, str]:
    """Return the filters of the address beside the search."""
    found = {
        "tab": query_params.choice(request, "tab", tuple(filters.TABS)),
        "status": query_params.choice(request, "status", tuple(RunStatus)),
        "from": request.GET.get("from", ""),
        "to": request.GET.get("to", ""),
        "order": query_params.choice(request, "order", (OLDEST,)),
    }
    return {name: text for name, text in found.items() if text}


def _condition(readable: Q, chosen: dict[str, str], search: str) -> Q:
    until = _day("to", chosen)
    if until and until.date() == date.max:
        until = None
    return filters.filter_runs(
        readable,
        tab=chosen.get("tab", ""),
        status=chosen.get("status", ""),
        search=search,
        since=_day("from", chosen),
        until=until and until + timedelta(days=1),
    )


def _day(name: str, chosen: dict[str, str]) -> datetime | None:
    """Return the start of a day in UTC. Raise InvalidInput naming the field."""
    if name not in chosen:
        return None
    try:
        return datetime.strptime(f"{chosen[name]} +0000", "%Y-%m-%d %z")
    except ValueError as exc:
        raise InvalidInput(name, "must be a day such as 2026-11-24") from exc


def _with_failed_calls(page: Page[RunLine]) -> list[tuple[RunLine, int]]:
    """Pair each run with the number of calls that failed although the run finished."""
    finished = [run.id for run in page.items if run.status == RunStatus.COMPLETED]
    failed = outcomes.failed_calls(finished)
    return [(run, failed.get(run.id, 0)) for run in page.items]


def _tab(name: str, label: str, chosen: dict[str, str], search: str) -> dict[str, Any]:
    """Return a tab, its address with the other filters, and whether it is the current one."""
    rest = {key: text for key, text in chosen.items() if key not in ("tab", "status")}
    query = urlencode({key: text for key, text in (("tab", name), *rest.items()) if text})
    if search:
        query = f"{query}{'&' if query else ''}{urlencode({'q': search})}"
    here = name == chosen.get("tab", "") and "status" not in chosen
    return {"label": label, "query": f"?{query}", "here": here}

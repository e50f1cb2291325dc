"""The page with the list of runs, and the way from two of its rows to their comparison."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.cache import patch_vary_headers
from django.views.decorators.http import require_safe

from runtime.core.continuation import RunStatus
from runtime.errors import InvalidInput
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.queries import outcomes
from runtime.queries import runs as run_queries
from runtime.queries.lists.filters import MAX_SEARCH
from runtime.queries.runs import Page, RunLine
from runtime.web.pages import query_params, runs_filter
from runtime.web.requests import actor_of

TABS = (
    ("", "All"),
    ("people", "Waiting for people"),
    ("working", "Working"),
    ("paused", "Paused"),
    ("failed", "Failed"),
    ("finished", "Finished"),
    ("cancelled", "Cancelled"),
)


@require_safe
@login_required
def runs(request: HttpRequest) -> HttpResponse:
    """List the runs that the actor may read, filtered by tab, status, search and day of the start."""
    actor, access = actor_of(request), wiring.access()
    readable, problem = access.readable_runs(actor), None
    is_admin = access.reads_continuations(actor)
    chosen = runs_filter.chosen(request)
    try:
        search = query_params.search(request)
        where = runs_filter.condition(readable, chosen, search)
    except InvalidInput as exc:
        problem, search, where = exc, request.GET.get("q", ""), Q(pk__in=[])
    kept = {**chosen, "q": search} if search and not problem else chosen
    page = run_queries.runs_page(
        where, cursor=query_params.cursor(request), oldest=chosen.get("order") == runs_filter.OLDEST
    )
    context = {
        "section": "runs",
        "page": page,
        "rows": _rows(page, actor),
        "terms": _terms(page.items),
        "zone": timezone.get_current_timezone_name(),
        "first_page": "cursor" not in request.GET,
        "tabs": [_tab(name, label, chosen, search) for name, label in TABS],
        "status": chosen.get("status", ""),
        "search": search,
        "mine": search == f"by:{actor.person}",
        "chosen": chosen,
        "filtered": bool(search or set(chosen) - {"order"}),
        "problem": problem,
        "wrong_search": problem is not None and problem.field == "q",
        "kept": kept,
        "place": f"?{urlencode(kept)}",
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
    """Redirect to the comparison of the two rows that were ticked, the older run first."""
    try:
        ids = sorted({UUID(text) for text in request.GET.getlist("run")})  # made of the time
    except ValueError:
        ids = []
    if len(ids) == 2:
        return redirect("compare", *ids)
    messages.error(request, "Select exactly two runs to compare.")
    return redirect("runs")


def _rows(page: Page[RunLine], actor: Actor) -> list[tuple[RunLine, int, bool]]:
    """Return each run, the number of calls that failed although it finished, and whether the actor may retry it."""
    finished = [run.id for run in page.items if run.status == RunStatus.COMPLETED]
    calls, failed = outcomes.failed_calls(finished), [run for run in page.items if _failed(run)]
    mine, all_ = _controls(actor, failed)
    return [
        (
            run,
            calls.get(run.id, 0),
            _failed(run) and (all_ or (mine and run.requester == actor.person)),
        )
        for run in page.items
    ]


def _failed(run: RunLine) -> bool:
    return run.status == RunStatus.FAILED


def _controls(actor: Actor, failed: Sequence[RunLine]) -> tuple[bool, bool]:
    """Tell whether the actor may control their own runs, and those of other people; read only if it matters."""
    access = wiring.access()
    mine = any(run.requester == actor.person for run in failed)
    others = any(run.requester != actor.person for run in failed)
    return (
        mine and access.may_control(actor, actor.person),
        others and access.may_control(actor, ""),
    )


def _terms(items: Sequence[RunLine]) -> list[str]:
    """Return the filters that make sense for these rows, to be suggested."""
    found = {
        "agent": {run.agent for run in items},
        "by": {run.requester for run in items},
        "key": {run.business_key for run in items if run.business_key},
    }
    return [
        f'{name}:"{text}"' if " " in text else f"{name}:{text}"
        for name, texts in found.items()
        for text in sorted(texts)
    ]


def _tab(name: str, label: str, chosen: dict[str, str], search: str) -> dict[str, Any]:
    """Return a tab, its address with the other filters, and whether it is the current one."""
    rest = {key: text for key, text in chosen.items() if key not in ("tab", "status")}
    query = urlencode({key: text for key, text in (("tab", name), *rest.items()) if text})
    if search:
        query = f"{query}{'&' if query else ''}{urlencode({'q': search})}"
    here = name == chosen.get("tab", "") and "status" not in chosen
    return {"label": label, "query": f"?{query}", "here": here}

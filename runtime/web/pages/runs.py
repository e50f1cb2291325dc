"""The list of runs with its filters, its download as CSV, and the way from two rows to their comparison."""

import json
import logging
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time, timedelta, tzinfo
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import Q
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.cache import patch_vary_headers
from django.views.decorators.http import require_GET, require_safe

from runtime.core.run.continuation import RunStatus
from runtime.errors import InvalidInput
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.reads import filters, outcomes, run_figures
from runtime.reads import runs as run_queries
from runtime.reads.filters import MAX_SEARCH
from runtime.reads.run_figures import UsageTotals
from runtime.reads.runs import Page, RunLine
from runtime.web import downloads
from runtime.web.pages import query_params
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
OLDEST = "oldest"
DOWNLOADED_ROWS = 200  # of one page, which are in memory at once
COLUMNS = (
    *("id", "agent", "business_key", "title", "status", "requester"),
    *("created_at", "ended_at", "seconds", "answer", "reason"),
    *("cost_usd", "input_tokens", "output_tokens"),
)


_log = logging.getLogger(__name__)


@require_safe
@login_required
def runs(request: HttpRequest) -> HttpResponse:
    """List the runs that the actor may read, filtered by tab, status, search and day of the start."""
    actor, access = actor_of(request), wiring.access()
    readable, problem = access.readable_runs(actor), None
    is_admin = access.reads_continuations(actor)
    filter_values = read_filters(request)
    try:
        search = query_params.search(request)
        matching = condition(readable, filter_values, search)
    except InvalidInput as exc:
        problem, search, matching = exc, request.GET.get("q", ""), Q(pk__in=[])
    query = {**filter_values, "q": search} if search and not problem else filter_values
    page = run_queries.runs_page(
        matching,
        cursor=query_params.cursor(request),
        oldest=filter_values.get("order") == OLDEST,
    )
    context = {
        "section": "runs",
        "page": page,
        "rows": _rows(page, actor),
        "terms": _terms(page.items),
        "zone": timezone.get_current_timezone_name(),
        "first_page": "cursor" not in request.GET,
        "tabs": [_tab(name, label, filter_values, search) for name, label in TABS],
        "status": filter_values.get("status", ""),
        "search": search,
        "mine": search == f"by:{actor.person}",
        "filters": filter_values,
        "filtered": bool(search or set(filter_values) - {"order"}),
        "problem": problem,
        "wrong_search": problem is not None and problem.field == "q",
        "parameters": query,
        "list_query": f"?{urlencode(query)}",
        "longest": MAX_SEARCH,
        "keep": f"{urlencode(query)}&" if query else "",
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


@require_GET
@login_required
def download(request: HttpRequest) -> HttpResponse | StreamingHttpResponse:
    """Stream all runs that match, and log who exports what."""
    actor = actor_of(request)
    try:
        filter_values, search = read_filters(request), query_params.search(request)
        condition(wiring.access().readable_runs(actor), filter_values, search)  # is it valid?
    except InvalidInput as exc:
        return HttpResponse(f"{exc.field} {exc.detail}.", "text/plain; charset=utf-8", status=422)
    lines = downloads.start(_lines(actor, filter_values, search, timezone.get_current_timezone()))
    if lines is None:
        return downloads.busy()
    filters = {**filter_values, **({"words": search} if search else {})}
    _log.info("%s exports the list of runs: %s", actor.person, json.dumps(filters))
    answer = StreamingHttpResponse(lines, content_type="text/csv; charset=utf-8")
    name = f"runs-{timezone.localdate()}.csv"
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer


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
    of_others = any(run.requester != actor.person for run in failed)
    return (
        mine and access.may_control(actor, actor.person),
        of_others and access.may_control(actor, ""),
    )


def _terms(items: Sequence[RunLine]) -> list[str]:
    """Return the filters that make sense for these rows, to be suggested."""
    texts_by_term = {
        "agent": {run.agent for run in items},
        "by": {run.requester for run in items},
        "key": {run.business_key for run in items if run.business_key},
    }
    return [
        f'{name}:"{text}"' if " " in text else f"{name}:{text}"
        for name, texts in texts_by_term.items()
        for text in sorted(texts)
    ]


def _tab(name: str, label: str, filter_values: dict[str, str], search: str) -> dict[str, Any]:
    """Return a tab, its address with the other filters, and whether it is the current one."""
    remaining = {key: text for key, text in filter_values.items() if key not in ("tab", "status")}
    query = urlencode({key: text for key, text in (("tab", name), *remaining.items()) if text})
    if search:
        query = f"{query}{'&' if query else ''}{urlencode({'q': search})}"
    here = name == filter_values.get("tab", "") and "status" not in filter_values
    return {"label": label, "query": f"?{query}", "here": here}


def read_filters(request: HttpRequest) -> dict[str, str]:
    """Return the filters of the address beside the search."""
    texts = {
        "tab": query_params.choice(request, "tab", tuple(filters.TABS)),
        "status": query_params.choice(request, "status", tuple(RunStatus)),
        "from": request.GET.get("from", ""),
        "to": request.GET.get("to", ""),
        "order": query_params.choice(request, "order", (OLDEST,)),
    }
    return {name: text for name, text in texts.items() if text}


def condition(readable: Q, filter_values: dict[str, str], search: str) -> Q:
    """Return the condition for these filters and a search. Raise InvalidInput naming the field."""
    until = _day("to", filter_values, after=1)
    return filters.filter_runs(
        readable,
        tab=filter_values.get("tab", ""),
        status=filter_values.get("status", ""),
        search=search,
        since=_day("from", filter_values),
        until=until,
    )


def _day(name: str, filter_values: dict[str, str], *, after: int = 0) -> datetime | None:
    """Return the start of a day, or of the one `after` it, in the reader's zone. Raise InvalidInput."""
    if name not in filter_values:
        return None
    try:
        day = date.fromisoformat(filter_values[name])
        if after and day == date.max:
            return None
        day += timedelta(days=after)
        return datetime.combine(day, time.min, tzinfo=timezone.get_current_timezone())
    except (ValueError, OverflowError) as exc:
        raise InvalidInput(name, "must be a day such as 2026-11-24") from exc


def _lines(actor: Actor, filter_values: dict[str, str], search: str, zone: tzinfo) -> Iterator[str]:
    yield downloads.row(COLUMNS)
    cursor: UUID | None = None
    while True:
        # The rights are read for each page: a person who loses them while it runs gets no further rows.
        with timezone.override(zone):  # that of the request, which is over
            matching = condition(wiring.access().readable_runs(actor), filter_values, search)
        page = run_queries.runs_page(
            matching,
            limit=DOWNLOADED_ROWS,
            cursor=cursor,
            oldest=filter_values.get("order") == OLDEST,
        )
        if page.items:
            used = run_figures.read_runs_usage([run.id for run in page.items])
            yield "".join(downloads.row(_values(run, used.get(run.id))) for run in page.items)
        if page.next is None:
            return
        cursor = UUID(page.next)


def _values(run: RunLine, used: UsageTotals | None) -> tuple[Any, ...]:
    """Return the cells of a run; those of its usage are empty until the sweeper has counted it."""
    counts = (used.cost, used.input_tokens, used.output_tokens) if used else (None, None, None)
    return (
        str(run.id),
        run.agent,
        run.business_key,
        run.title,
        run.status,
        run.requester,
        run.created_at.isoformat(),
        run.ended_at.isoformat() if run.ended_at else None,
        round(run.lasted.total_seconds(), 3) if run.ended else None,
        run.answer,
        run.reason_start,
        *counts,
    )

"""The list of runs with its filters, its download as CSV, the comparison of two rows, and acts on all that match.

An act on many runs has a preview of which and how many, then one form with a reason. Each run is checked again when it
is acted on, and its own audit has the person and the reason.
"""

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, tzinfo
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

import psycopg
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db import OperationalError
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_GET

from runtime.control.interventions import cancel, retry
from runtime.control.user_actions import validate_reason
from runtime.core.run.continuation import RunStatus
from runtime.core.values.errors import NewerSchema
from runtime.core.values.limits import MAX_REASON
from runtime.errors import InvalidInput, KeyMissing, ObjectStoreDown, RequestError, Tampered
from runtime.ports import wiring
from runtime.ports.access import Access, Actor
from runtime.reads import filters, outcomes, run_figures
from runtime.reads import run_rows as run_queries
from runtime.reads.filters import FILTERS, MAX_SEARCH
from runtime.reads.run_rows import Page, RunLine
from runtime.web import downloads, requests
from runtime.web.requests import read_actor, read_text, render_live, users

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
MAX_RUNS = 1_000  # that one form acts on
NAMED = 50  # runs that the preview names

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchAct:
    """One act on many runs: the runs that it fits, its words, the act on one, and who `may` do it to whose runs."""

    name: str
    fits: Q
    verb: str
    past_verb: str
    effect: str
    act: Callable[..., object]
    may: Callable[[Access, Actor, str], bool]


ACTS = {
    "cancel": BatchAct(
        name="cancel",
        fits=Q(ended_at__isnull=True),
        verb="Cancel",
        past_verb="cancelled",
        effect="Cancelling undoes nothing. Running calls finish, and nothing new starts.",
        act=cancel,
        may=lambda access, actor, requester: access.may_cancel(actor, requester),
    ),
    "retry": BatchAct(
        name="retry",
        fits=Q(status=RunStatus.FAILED),
        verb="Try again",
        past_verb="started again",
        effect="Each run continues from where it failed. No approval is used twice.",
        act=retry,
        may=lambda access, actor, requester: access.may_control(actor, requester),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """The number of runs on which the act was done, and of refusals by their reason."""

    runs: int
    refusals: tuple[tuple[str, int], ...]


@users.guard_page
def show_runs(request: HttpRequest) -> HttpResponse:
    """List the runs that the actor may read, filtered by tab, status, search and day of the start."""
    actor, access = read_actor(request), wiring.resolve_access()
    readable, problem = access.select_readable_runs(actor), None
    is_admin = access.may_read_continuations(actor)
    filter_values = read_filters(request)
    try:
        search = requests.read_search_text(request)
        matching = build_condition(readable, filter_values, search)
    except InvalidInput as exc:
        problem, search, matching = exc, request.GET.get("q", ""), Q(pk__in=[])
    query = {**filter_values, "q": search} if search and not problem else filter_values
    page = run_queries.read_runs_page(
        matching,
        cursor=requests.read_cursor(request),
        oldest=filter_values.get("order") == OLDEST,
    )
    context = {
        "section": "runs",
        "page": page,
        "rows": _build_rows(page, actor),
        "terms": _suggest_terms(page.items),
        "zone": timezone.get_current_timezone_name(),
        "first_page": "cursor" not in request.GET,
        "tabs": [_build_tab(name, label, filter_values, search) for name, label in TABS],
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
        "operators": FILTERS,
        "keep": f"{urlencode(query)}&" if query else "",
        "source": request.get_full_path(),
        "is_admin": is_admin,
        "alarms": run_queries.count_quarantined(readable) if is_admin else 0,
    }
    return render_live(request, "runs/runs.html", context, 422 if problem else 200, "list")


@users.guard_page
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
def download(request: HttpRequest) -> downloads.Answer:
    """Stream all runs that match, and log who exports what."""
    actor = read_actor(request)
    try:
        filter_values, search = read_filters(request), requests.read_search_text(request)
        build_condition(
            wiring.resolve_access().select_readable_runs(actor), filter_values, search
        )  # is it valid?
    except InvalidInput as exc:
        return downloads.refuse(exc)
    lines = downloads.start(
        _yield_lines(actor, filter_values, search, timezone.get_current_timezone())
    )
    if lines is not None:
        filters = {**filter_values, **({"words": search} if search else {})}
        _log.info("%s exports the list of runs: %s", actor.person, json.dumps(filters))
    return downloads.stream(lines, f"runs-{timezone.localdate()}.csv", "text/csv; charset=utf-8")


@users.form
def run_batch(request: HttpRequest, name: str) -> HttpResponse:
    """Show the runs of the filtered list on which the act would be done, and the form; do it on POST."""
    act, actor, problem = ACTS[name], read_actor(request), None
    context: dict[str, Any] = {
        "section": "runs",
        "act": act,
        "max_reason": MAX_REASON,
        "most": MAX_RUNS,
    }
    if request.method == "POST":
        try:
            ids = _read_ids(request.POST.get("runs", ""))
            reason = validate_reason(read_text(request.POST, "reason"), "is required")
            context["result"] = _act(act, ids, reason, actor)
            return render(request, "runs/batch.html", context)
        except InvalidInput as exc:
            problem = exc
    page, back = _select_matching_runs(request, act, actor)
    context |= {
        "page": page,
        "named": page.items[:NAMED],
        "unnamed": len(page.items) - len(page.items[:NAMED]),
        "agents": sorted(Counter(run.agent for run in page.items).items()),
        "ids": ",".join(str(run.id) for run in page.items),
        "back": back,
        "problem": problem,
        "reason": read_text(request.POST, "reason"),
    }
    return render(request, "runs/batch.html", context, status=422 if problem else 200)


def read_filters(request: HttpRequest) -> dict[str, str]:
    """Return the filters of the address beside the search."""
    texts = {
        "tab": requests.read_choice(request, "tab", tuple(filters.TABS)),
        "status": requests.read_choice(request, "status", tuple(RunStatus)),
        "from": request.GET.get("from", ""),
        "to": request.GET.get("to", ""),
        "order": requests.read_choice(request, "order", (OLDEST,)),
    }
    return {name: text for name, text in texts.items() if text}


def build_condition(readable: Q, filter_values: dict[str, str], search: str) -> Q:
    """Return the condition for these filters and a search. Raise InvalidInput naming the field."""
    until = _read_day("to", filter_values, after=1)
    return filters.filter_runs(
        readable,
        tab=filter_values.get("tab", ""),
        status=filter_values.get("status", ""),
        search=search,
        since=_read_day("from", filter_values),
        until=until,
    )


def _build_rows(page: Page[RunLine], actor: Actor) -> list[tuple[RunLine, int, bool]]:
    """Return each run, the number of calls that failed although it finished, and whether the actor may retry it."""
    finished = [run.id for run in page.items if run.status == RunStatus.COMPLETED]
    calls = outcomes.count_failed_calls(finished)
    access = wiring.resolve_access()
    failed = [run for run in page.items if run.status == RunStatus.FAILED]
    requesters = {run.requester for run in failed}
    # The rights are read only if they matter.
    may_retry_own = actor.person in requesters and access.may_control(actor, actor.person)
    may_retry_all = bool(requesters - {actor.person}) and access.may_control(actor, "")
    return [
        (
            run,
            calls.get(run.id, 0),
            run.status == RunStatus.FAILED
            and (may_retry_all or (may_retry_own and run.requester == actor.person)),
        )
        for run in page.items
    ]


def _suggest_terms(items: Sequence[RunLine]) -> list[str]:
    """Return the filters that make sense for these rows, to be suggested."""
    texts_by_term = {
        "agent": {run.agent for run in items},
        "by": {run.requester for run in items},
        "key": {run.readable_key for run in items if run.readable_key},
    }
    return [
        f'{name}:"{text}"' if " " in text else f"{name}:{text}"
        for name, texts in texts_by_term.items()
        for text in sorted(texts)
    ]


def _build_tab(name: str, label: str, filter_values: dict[str, str], search: str) -> dict[str, Any]:
    """Return a tab, its address with the other filters, and whether it is the current one."""
    remaining = {key: text for key, text in filter_values.items() if key not in ("tab", "status")}
    query = urlencode({key: text for key, text in (("tab", name), *remaining.items()) if text})
    if search:
        query = f"{query}{'&' if query else ''}{urlencode({'q': search})}"
    here = name == filter_values.get("tab", "") and "status" not in filter_values
    return {"label": label, "query": f"?{query}", "here": here}


def _read_day(name: str, filter_values: dict[str, str], *, after: int = 0) -> datetime | None:
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


def _yield_lines(
    actor: Actor, filter_values: dict[str, str], search: str, zone: tzinfo
) -> Iterator[str]:
    yield downloads.format_row(COLUMNS)
    cursor: UUID | None = None
    while True:
        # The rights are read for each page: a person who loses them while it runs gets no further rows.
        with timezone.override(zone):  # that of the request, which is over
            matching = build_condition(
                wiring.resolve_access().select_readable_runs(actor), filter_values, search
            )
        page = run_queries.read_runs_page(
            matching,
            limit=DOWNLOADED_ROWS,
            cursor=cursor,
            oldest=filter_values.get("order") == OLDEST,
        )
        if page.items:
            used = run_figures.read_runs_usage([run.id for run in page.items])
            yield "".join(
                downloads.format_row(_build_cells(run, used.get(run.id))) for run in page.items
            )
        if page.next is None:
            return
        cursor = UUID(page.next)


def _build_cells(run: RunLine, used: run_figures.UsageTotals | None) -> tuple[Any, ...]:
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


def _select_matching_runs(
    request: HttpRequest, act: BatchAct, actor: Actor
) -> tuple[Page[RunLine], str]:
    """Return the first MAX_RUNS runs of the list in the address that the act fits, and the address of the list.

    Without a right to the act on runs of other people, only the actor's own are listed.
    """
    filters, access = read_filters(request), wiring.resolve_access()
    readable = access.select_readable_runs(actor)
    if not act.may(access, actor, ""):
        readable &= Q(requester=actor.person)
    try:
        search = requests.read_search_text(request)
        matching = build_condition(readable, filters, search)
    except InvalidInput:
        search, matching = "", Q(pk__in=[])
    query = {**filters, "q": search} if search else filters
    page = run_queries.read_runs_page(matching & act.fits, limit=MAX_RUNS)
    return page, urlencode(query)


def _read_ids(text: str) -> list[UUID]:
    """Read the ids that the preview has listed. Raise InvalidInput naming `runs`."""
    try:
        ids = list(dict.fromkeys(UUID(part) for part in text.split(","))) if text else []
    except ValueError:
        raise InvalidInput("runs", "must be ids of runs") from None
    if not 0 < len(ids) <= MAX_RUNS:
        raise InvalidInput("runs", f"must be 1 to {MAX_RUNS} runs")
    return ids


def _act(act: BatchAct, ids: list[UUID], reason: str, actor: Actor) -> BatchResult:
    refusals = Counter[str]()
    for run in ids:
        try:
            act.act(run=run, reason=reason, actor=actor)
        except RequestError as exc:
            refusals[exc.detail] += 1
        except (Tampered, KeyMissing, NewerSchema):
            refusals["The stored data does not verify."] += 1
        except (ObjectStoreDown, OperationalError, psycopg.OperationalError):
            refusals["The database or the object store did not answer. Do it again."] += 1
    return BatchResult(runs=len(ids) - refusals.total(), refusals=tuple(refusals.most_common()))

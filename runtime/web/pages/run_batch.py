"""Cancels or retries all runs of a filtered list: a preview of which and how many, then one form with a reason.

Each run is checked again when it is acted on, and its own audit has the person and the reason.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

import psycopg
from django.contrib.auth.decorators import login_required
from django.db import OperationalError
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_http_methods

from runtime.control.access import validate_text
from runtime.control.interventions import cancel, retry
from runtime.core.run.continuation import RunStatus
from runtime.core.values.errors import NewerSchema
from runtime.core.values.limits import MAX_REASON
from runtime.errors import InvalidInput, KeyMissing, ObjectStoreDown, RequestError, Tampered
from runtime.ports import wiring
from runtime.ports.access import Access, Actor
from runtime.reads import runs as run_queries
from runtime.reads.runs import Page, RunLine
from runtime.web.pages import query_params
from runtime.web.pages.runs import condition, read_filters
from runtime.web.requests import actor_of, form_text

MAX_RUNS = 1_000  # that one form acts on
NAMED = 50  # runs that the preview names


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


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def run_batch(request: HttpRequest, name: str) -> HttpResponse:
    """Show the runs of the filtered list on which the act would be done, and the form; do it on POST."""
    act, actor, problem = ACTS[name], actor_of(request), None
    context: dict[str, Any] = {
        "section": "runs",
        "act": act,
        "max_reason": MAX_REASON,
        "most": MAX_RUNS,
    }
    if request.method == "POST":
        try:
            ids = _read_ids(request.POST.get("runs", ""))
            reason = validate_text(
                "reason", form_text(request.POST, "reason"), MAX_REASON, required="is required"
            )
            context["result"] = _act(act, ids, reason, actor)
            return render(request, "runs/batch.html", context)
        except InvalidInput as exc:
            problem = exc
    page, back = _matching(request, act, actor)
    context |= {
        "page": page,
        "named": page.items[:NAMED],
        "unnamed": len(page.items) - len(page.items[:NAMED]),
        "agents": sorted(Counter(run.agent for run in page.items).items()),
        "ids": ",".join(str(run.id) for run in page.items),
        "back": back,
        "problem": problem,
        "reason": form_text(request.POST, "reason"),
    }
    return render(request, "runs/batch.html", context, status=422 if problem else 200)


def _matching(request: HttpRequest, act: BatchAct, actor: Actor) -> tuple[Page[RunLine], str]:
    """Return the first MAX_RUNS runs of the list in the address that the act fits, and the address of the list.

    Without a right to the act on runs of other people, only the actor's own are listed.
    """
    filters, access = read_filters(request), wiring.access()
    readable = access.readable_runs(actor)
    if not act.may(access, actor, ""):
        readable &= Q(requester=actor.person)
    try:
        search = query_params.search(request)
        matching = condition(readable, filters, search)
    except InvalidInput:
        search, matching = "", Q(pk__in=[])
    query = {**filters, "q": search} if search else filters
    page = run_queries.runs_page(matching & act.fits, limit=MAX_RUNS)
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

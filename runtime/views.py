"""The pages of runs: doors that check access, read, and answer."""

from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from runtime import ports, queries
from runtime.ports import Actor


@require_safe
@login_required
def runs(request: HttpRequest) -> HttpResponse:
    """The runs this person may read, newest first."""
    readable = ports.access().readable_runs(_actor(request))
    page = queries.runs_page(readable, cursor=_cursor(request))
    context = {"place": "runs", "page": page, "first_page": "cursor" not in request.GET}
    return render(request, "runs.html", context)


@require_safe
@login_required
def run(request: HttpRequest, run: UUID) -> HttpResponse:
    """One run: where it stands, what it waits for, and what its agents did."""
    actor = _actor(request)
    access = ports.access()
    found = queries.run_detail(access.readable_runs(actor), run)
    if found is None:
        raise Http404
    context = {
        "place": "runs",
        "run": found,
        "progress": queries.progress(run),
        "is_admin": access.reads_continuations(actor),
    }
    return render(request, "run.html", context)


def _actor(request: HttpRequest) -> Actor:
    return Actor(person=request.user.get_username())


def _cursor(request: HttpRequest) -> UUID | None:
    text = request.GET.get("cursor")
    try:
        return None if text is None else UUID(text)
    except ValueError as exc:
        raise Http404 from exc

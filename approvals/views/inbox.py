"""The inbox: what waits for this person, one sentence each."""

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from approvals import permissions, queries
from approvals.errors import Invalid
from runtime import queries as runs
from runtime.core.decisions import GateKind


@require_safe
@login_required
def inbox(request: HttpRequest) -> HttpResponse:
    actor = permissions.actor_of(request.user)
    try:
        waiting = queries.inbox(actor, cursor=request.GET.get("cursor"))
    except Invalid as exc:
        raise Http404(exc.detail) from exc
    readable = permissions.Access().readable_runs(actor)
    return render(
        request,
        "inbox.html",
        {
            "place": "inbox",
            "inbox": waiting,
            "doubts": runs.open_gates(readable, kind=GateKind.IN_DOUBT),
            "first_page": "cursor" not in request.GET,
        },
    )

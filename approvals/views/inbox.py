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
    doubts = queries.inbox(actor, kind=GateKind.IN_DOUBT, limit=queries.MAX_LIMIT)
    access = permissions.Access()
    is_admin = access.reads_continuations(actor)
    return render(
        request,
        "inbox.html",
        {
            "place": "inbox",
            "inbox": waiting,
            "doubts": doubts,
            "waiting": waiting.for_you + doubts.for_you,
            "alarms": runs.quarantined(access.readable_runs(actor)) if is_admin else 0,
            "first_page": "cursor" not in request.GET,
        },
    )

"""Letting a run out of quarantine: what that means, and the form that does it, for admins."""

from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from runtime import actions, ports, queries
from runtime.core.continuation import RunStatus
from runtime.core.errors import NewerSchema
from runtime.core.limits import MAX_REASON
from runtime.errors import KeyMissing, NotQuarantined, Tampered
from runtime.ports import InvalidInput
from runtime.views.asked import actor_of, readable


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def readmit(request: HttpRequest, run: UUID) -> HttpResponse:
    """The evidence against the run, and the form that lets it go on."""
    actor = actor_of(request)
    found = readable(run, actor)
    if not ports.access().reads_continuations(actor):
        raise Http404
    if request.method != "POST":
        return _readmit_page(request, found)
    # Browsers send line breaks as CRLF whatever was typed.
    reason = request.POST.get("reason", "").replace("\r\n", "\n")
    try:
        actions.readmit(run=run, reason=reason, actor=actor)
    except InvalidInput as exc:
        return _readmit_page(request, found, field=exc, reason=reason, status=422)
    except (Tampered, KeyMissing, NewerSchema) as exc:
        return _readmit_page(request, found, problem=str(exc), reason=reason, status=409)
    except NotQuarantined:
        return _readmit_page(request, readable(run, actor), reason=reason, status=409)
    return redirect("run", run=run)


def _readmit_page(
    request: HttpRequest,
    shown: queries.RunDetail,
    *,
    field: InvalidInput | None = None,
    problem: str = "",
    reason: str = "",
    status: int = 200,
) -> HttpResponse:
    context = {
        "place": "runs",
        "run": shown,
        "quarantined": shown.status == RunStatus.QUARANTINED,
        "losses": queries.losses(shown.id),
        "field": field,
        "problem": problem,
        "reason": reason,
        "max_reason": MAX_REASON,
    }
    return render(request, "readmit.html", context, status=status)

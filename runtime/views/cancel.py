"""Ending a run: what that means, and the form that does it."""

from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from runtime import ports, queries
from runtime.control.access import readable
from runtime.control.cancel import cancel as cancel_run
from runtime.core.limits import MAX_REASON
from runtime.errors import RunEnded
from runtime.ports import Actor, Forbidden, InvalidInput
from runtime.views.asked import actor_of


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def cancel(request: HttpRequest, run: UUID) -> HttpResponse:
    """What ending the run means, and the form that ends it."""
    actor = actor_of(request)
    if request.method != "POST":
        return _cancel_page(request, readable(run, actor))
    # Browsers send line breaks as CRLF whatever was typed.
    reason = request.POST.get("reason", "").replace("\r\n", "\n")
    try:
        cancel_run(run=run, reason=reason, actor=actor)
    except Forbidden:
        return _cancel_page(request, readable(run, actor), status=403)
    except InvalidInput as exc:
        return _cancel_page(request, readable(run, actor), exc, reason, status=422)
    except RunEnded:
        if _ended_by(actor, run):  # the second of two clicks arrives where the first one led
            return redirect("run", run=run)
        return _cancel_page(request, readable(run, actor), reason=reason, status=409)
    return redirect("run", run=run)


def _ended_by(actor: Actor, run: UUID) -> bool:
    ending = queries.progress(run).ending
    return ending is not None and ending.by == actor.person


def _cancel_page(
    request: HttpRequest,
    shown: queries.RunDetail,
    problem: InvalidInput | None = None,
    reason: str = "",
    *,
    status: int = 200,
) -> HttpResponse:
    progress = queries.progress(shown.id)
    context = {
        "place": "runs",
        "run": shown,
        "progress": progress,
        "traces": [call for call in progress.calls() if call.leaves_traces],
        "may_cancel": ports.access().may_cancel(actor_of(request), shown.requester),
        "cancel_asked": not shown.ended and queries.cancel_asked(shown.id),
        "problem": problem,
        "reason": reason,
        "max_reason": MAX_REASON,
        "late": status == 409,
    }
    return render(request, "cancel.html", context, status=status)

"""Trying a failed run again: what that means, and the form that does it."""

from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from runtime import actions, ports, queries
from runtime.core.continuation import RunStatus
from runtime.core.errors import NewerSchema
from runtime.core.limits import MAX_REASON
from runtime.errors import KeyMissing, NoSuchRun, NotFailed, Tampered
from runtime.ports import Forbidden, InvalidInput
from runtime.views.asked import actor_of, readable


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def retry(request: HttpRequest, run: UUID) -> HttpResponse:
    """What trying the run again means, and the form that does it."""
    actor = actor_of(request)
    found = readable(run, actor)
    if request.method != "POST":
        return _retry_page(request, found)
    # Browsers send line breaks as CRLF whatever was typed.
    reason = request.POST.get("reason", "").replace("\r\n", "\n")
    try:
        actions.retry(run=run, reason=reason, actor=actor)
    except NoSuchRun as exc:
        raise Http404 from exc
    except Forbidden:
        return _retry_page(request, found, status=403)
    except InvalidInput as exc:
        return _retry_page(request, found, field=exc, reason=reason, status=422)
    except (Tampered, KeyMissing, NewerSchema) as exc:
        return _retry_page(request, found, problem=str(exc), reason=reason, status=409)
    except NotFailed:
        return _retry_page(request, readable(run, actor), reason=reason, status=409)
    return redirect("run", run=run)


def _retry_page(
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
        "failed": shown.status == RunStatus.FAILED and shown.removed_at is None,
        "may_retry": ports.access().may_control(actor_of(request), shown.requester),
        "traces": [call for call in queries.progress(shown.id).calls() if call.leaves_traces],
        "field": field,
        "problem": problem,
        "reason": reason,
        "max_reason": MAX_REASON,
    }
    return render(request, "retry.html", context, status=status)

"""The pages of runs: doors that check access, read, and answer."""

from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from runtime import actions, ports, queries
from runtime.core.continuation import RunStatus
from runtime.errors import NoSuchRun, RunEnded
from runtime.ports import Actor, Forbidden, InvalidInput


@require_safe
@login_required
def runs(request: HttpRequest) -> HttpResponse:
    """The runs this person may read, newest first; `status` narrows them down."""
    actor, access = _actor(request), ports.access()
    readable, status = access.readable_runs(actor), _status(request)
    page = queries.runs_page(readable, status=status, cursor=_cursor(request))
    context = {
        "place": "runs",
        "page": page,
        "first_page": "cursor" not in request.GET,
        "status": status,
        "keep": f"status={status}&" if status else "",
        "alarms": queries.quarantined(readable) if access.reads_continuations(actor) else 0,
    }
    return render(request, "runs.html", context)


@require_safe
@login_required
def run(request: HttpRequest, run: UUID) -> HttpResponse:
    """One run: where it stands, what it waits for, and what its agents did."""
    actor, access = _actor(request), ports.access()
    found = _readable(run, actor)
    context = {
        "place": "runs",
        "run": found,
        "progress": queries.progress(run),
        "is_admin": access.reads_continuations(actor),
        "cancel_asked": not found.ended and queries.cancel_asked(run),
        "may_cancel": _can_end(found) and access.may_cancel(actor, found.requester),
    }
    return render(request, "run.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def cancel(request: HttpRequest, run: UUID) -> HttpResponse:
    """What ending the run means, and the form that ends it."""
    actor = _actor(request)
    if request.method != "POST":
        return _cancel_page(request, _readable(run, actor))
    # Browsers send line breaks as CRLF whatever was typed.
    reason = request.POST.get("reason", "").replace("\r\n", "\n")
    try:
        actions.cancel(run=run, reason=reason, actor=actor)
    except NoSuchRun as exc:
        raise Http404 from exc
    except Forbidden:
        return _cancel_page(request, _readable(run, actor), status=403)
    except InvalidInput as exc:
        return _cancel_page(request, _readable(run, actor), exc, reason, status=422)
    except RunEnded:
        if _ended_by(actor, run):  # the second of two clicks arrives where the first one led
            return redirect("run", run=run)
        return _cancel_page(request, _readable(run, actor), reason=reason, status=409)
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
        "may_cancel": ports.access().may_cancel(_actor(request), shown.requester),
        "cancel_asked": not shown.ended and queries.cancel_asked(shown.id),
        "problem": problem,
        "reason": reason,
        "max_reason": actions.MAX_REASON,
        "can_end": _can_end(shown),
        "late": status == 409,
    }
    return render(request, "cancel.html", context, status=status)


def _can_end(shown: queries.RunDetail) -> bool:
    return not shown.ended and shown.status != RunStatus.QUARANTINED


def _readable(run: UUID, actor: Actor) -> queries.RunDetail:
    try:
        return actions.readable(run, actor)
    except NoSuchRun as exc:
        raise Http404 from exc


def _actor(request: HttpRequest) -> Actor:
    return Actor(person=request.user.get_username())


def _cursor(request: HttpRequest) -> UUID | None:
    text = request.GET.get("cursor")
    try:
        return None if text is None else UUID(text)
    except ValueError as exc:
        raise Http404 from exc


def _status(request: HttpRequest) -> RunStatus | None:
    text = request.GET.get("status")
    try:
        return None if text is None else RunStatus(text)
    except ValueError as exc:
        raise Http404 from exc

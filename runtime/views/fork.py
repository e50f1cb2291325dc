"""Forking a run: what that means from one entry of its journal, and the form that does it."""

from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from runtime import ports, queries
from runtime.control.access import readable
from runtime.control.fork import fork as fork_run
from runtime.errors import KeyMissing, NotQuiescent, Tampered
from runtime.ports import Forbidden, InvalidInput
from runtime.views.asked import actor_of


@require_safe
@login_required
def newest(request: HttpRequest, run: UUID) -> HttpResponse:
    """The form for the newest entry that a fork may go on from; every run may be forked from its start."""
    found = readable(run, actor_of(request))
    return redirect("fork", run=run, position=queries.last_quiescent(run) or found.position)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def fork(request: HttpRequest, run: UUID, position: int) -> HttpResponse:
    """What a fork from this entry means, and the form that makes it."""
    actor = actor_of(request)
    if request.method != "POST":
        return _fork_page(request, readable(run, actor), position)
    try:
        new = fork_run(run=run, position=position, actor=actor)
    except InvalidInput as exc:
        raise Http404 from exc
    except Forbidden:
        return _fork_page(request, readable(run, actor), position, status=403)
    except NotQuiescent:
        return _fork_page(request, readable(run, actor), position, status=409)
    except (Tampered, KeyMissing) as exc:
        return _fork_page(request, readable(run, actor), position, str(exc), status=409)
    return redirect("run", run=new)


def _fork_page(
    request: HttpRequest,
    shown: queries.RunDetail,
    position: int,
    problem: str = "",
    *,
    status: int = 200,
) -> HttpResponse:
    actor, access = actor_of(request), ports.access()
    # The column holds eight bytes; what does not fit into it is no entry either.
    view = queries.fork_view(shown.id, position) if position <= shown.position else None
    if view is None:
        raise Http404
    context = {
        "place": "runs",
        "run": shown,
        "fork": view,
        "problem": problem,
        "may_fork": access.may_fork(actor, shown.requester),
        "is_admin": access.reads_continuations(actor),
    }
    return render(request, "fork.html", context, status=status)

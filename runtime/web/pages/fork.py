"""The page for forking a run from an entry of its journal: the consequences, and the form."""

from collections.abc import Mapping
from functools import partial
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods, require_safe

from runtime.control.access import readable
from runtime.control.forks.fork import fork as fork_run
from runtime.core.limits import MAX_MESSAGE
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.queries.history import fork_preview
from runtime.queries.runs import RunDetail
from runtime.web.pages.action_form import Context, Refusal, answer
from runtime.web.pages.fork_fields import change_of, fields_of
from runtime.web.requests import actor_of


@require_safe
@login_required
def newest(request: HttpRequest, run: UUID) -> HttpResponse:
    """Redirect to the form for the newest entry that can be forked."""
    found = readable(run, actor_of(request))
    return redirect("fork", run=run, position=fork_preview.last_quiescent(run) or found.position)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def fork(request: HttpRequest, run: UUID, position: int) -> HttpResponse:
    """Show the consequences of a fork from this entry and the form; fork the run on POST."""
    return answer(
        request,
        run,
        "runs/fork.html",
        act=lambda actor: fork_run(
            run=run, position=position, actor=actor, change=change_of(request.POST)
        ),
        context=partial(_context, position, request.POST),
    )


def _context(
    position: int,
    posted: Mapping[str, str],
    actor: Actor,
    shown: RunDetail,
    refusal: Refusal | None,
) -> Context:
    # Positions are eight-byte integers; larger numbers name no entry.
    view = fork_preview.preview(shown.id, position) if position <= shown.position else None
    if view is None:
        raise Http404
    return {
        "fork": view,
        "may_fork": wiring.access().may_fork(actor, shown.requester),
        "changes": fields_of(view.changes, posted, refusal),
        "max_message": MAX_MESSAGE,
        "is_admin": wiring.access().reads_continuations(actor),
    }

"""The page of stops, for admins: which agents stand still and why, and the two things that can be done."""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from runtime import ports
from runtime.control.kill_switches import disengage, engage, list_switches
from runtime.core.limits import MAX_REASON
from runtime.errors import StopNotOn, StoppedAlready
from runtime.ports import Forbidden, InvalidInput, UnknownAgent
from runtime.requests import form_text
from runtime.views.asked import actor_of

P = ParamSpec("P")

EVERY = "*"  # the choice of every agent; an empty choice stops nothing


def admins_only(
    view: Callable[Concatenate[HttpRequest, P], HttpResponse],
) -> Callable[Concatenate[HttpRequest, P], HttpResponse]:
    """For anybody else the page does not exist."""

    @wraps(view)
    def door(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        try:
            return view(request, *args, **kwargs)
        except Forbidden as exc:
            raise Http404 from exc

    return door


@require_safe
@login_required
@admins_only
def stops(request: HttpRequest) -> HttpResponse:
    """What is stopped, the form that stops, and what was stopped before."""
    return _page(request)


@require_POST
@login_required
@admins_only
def stop(request: HttpRequest) -> HttpResponse:
    chosen = request.POST.get("agent", "")
    agent = "" if chosen == EVERY else chosen
    reason = form_text(request.POST, "reason")
    if not chosen:
        return _page(request, "Choose an agent, or every agent. Nothing was stopped.", status=422)
    try:
        done = engage(agent=agent, reason=reason, actor=actor_of(request))
    except InvalidInput as problem:
        return _page(request, f"The {problem.field} {problem.detail}.", status=422)
    except UnknownAgent:
        return _page(request, "There is no agent of this name.", status=422)
    except StoppedAlready as problem:
        return _page(request, str(problem), status=409)
    messages.success(request, f"{done.agent or 'Every agent'} is stopped.")
    return redirect("stops")


@require_POST
@login_required
@admins_only
def lift(request: HttpRequest, stop: int) -> HttpResponse:
    try:
        done = disengage(stop=stop, actor=actor_of(request))
    except StopNotOn as problem:
        return _page(request, str(problem), status=409)
    messages.success(request, f"{done.agent or 'Every agent'} goes on.")
    return redirect("stops")


def _page(request: HttpRequest, problem: str = "", *, status: int = 200) -> HttpResponse:
    actor = actor_of(request)
    context = {
        "place": "stops",
        "on": list_switches(lifted=False, actor=actor),
        "over": list_switches(lifted=True, actor=actor),
        "agents": ports.catalogue().names(),
        "every": EVERY,
        "problem": problem,
        "typed": request.POST,
        "max_reason": MAX_REASON,
    }
    return render(request, "stops.html", context, status=status)

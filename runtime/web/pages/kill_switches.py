"""The page of kill switches, for admins: the engaged ones, forms to engage and disengage, and the history."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from runtime.control import kill_switches
from runtime.core.values.limits import MAX_REASON
from runtime.errors import InvalidInput, SwitchAlreadyEngaged, SwitchNotEngaged, UnknownAgent
from runtime.ports import wiring
from runtime.web.requests import actor_of, admins_only, form_text

EVERY = "*"  # the choice of all agents; an empty choice is refused
CONFIRMATION = "every agent"  # typed by the admin for that choice


@require_safe
@admins_only
def list_switches(request: HttpRequest) -> HttpResponse:
    """Show the engaged kill switches, the form, and the history."""
    return _page(request)


@require_POST
@admins_only
def engage(request: HttpRequest) -> HttpResponse:
    """Engage a kill switch for an agent, or for all."""
    choice = request.POST.get("agent", "")
    agent = "" if choice == EVERY else choice
    reason = form_text(request.POST, "reason")
    if not choice:
        return _page(request, "Choose an agent, or every agent. Nothing was stopped.", status=422)
    if choice == EVERY and request.POST.get("confirm", "").strip().lower() != CONFIRMATION:
        problem = f"Type “{CONFIRMATION}” to stop all of them. Nothing was stopped."
        return _page(request, problem, status=422)
    try:
        switch = kill_switches.engage(agent=agent, reason=reason, actor=actor_of(request))
    except InvalidInput as problem:
        return _page(request, f"The {problem.field} {problem.detail}.", status=422)
    except (UnknownAgent, SwitchAlreadyEngaged) as problem:
        return _page(request, problem.detail, status=problem.status)
    messages.success(request, f"{switch.agent or 'Every agent'} is stopped.")
    return redirect("kill_switches")


@require_POST
@admins_only
def disengage(request: HttpRequest, stop: int) -> HttpResponse:
    """Disengage a kill switch."""
    try:
        switch = kill_switches.disengage(stop=stop, actor=actor_of(request))
    except SwitchNotEngaged as problem:
        return _page(request, str(problem), status=409)
    messages.success(request, f"{switch.agent or 'Every agent'} resumed.")
    return redirect("kill_switches")


def _page(request: HttpRequest, problem: str = "", *, status: int = 200) -> HttpResponse:
    actor = actor_of(request)
    context = {
        "section": "kill_switches",
        "active": kill_switches.list_switches(lifted=False, actor=actor),
        "past": kill_switches.list_switches(lifted=True, actor=actor),
        "agents": wiring.catalogue().names(),
        "every": EVERY,
        "confirmation": CONFIRMATION,
        "problem": problem,
        "typed": request.POST,
        "max_reason": MAX_REASON,
    }
    return render(request, "runs/kill_switches.html", context, status=status)

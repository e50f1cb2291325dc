"""The page of kill switches, for admins: the engaged ones, forms to engage and disengage, and the history."""

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render

from runtime.control import kill_switches
from runtime.core.values.limits import MAX_REASON
from runtime.errors import InvalidInput, SwitchAlreadyEngaged, SwitchNotEngaged, UnknownAgent
from runtime.ports import wiring
from runtime.reads.labels import format_agent_title
from runtime.web.forms import PageForm, TypedField
from runtime.web.requests import admins, read_actor, redirect_with

EVERY = "*"  # the choice of all agents; an empty choice is refused
CONFIRMATION = "every agent"  # typed by the admin for that choice


class SwitchForm(PageForm):
    """The form that engages a kill switch."""

    agent = TypedField("Which agent", choices=[("", "Choose")], required=True)
    confirm = TypedField(f"To stop every agent, type “{CONFIRMATION}”")
    reason = TypedField("Reason (recorded)", "long", rows=2, maximum=MAX_REASON, required=True)

    def __init__(self, data: QueryDict | None = None) -> None:
        super().__init__(data)
        names = [
            (name, format_agent_title(name)) for name in wiring.resolve_catalogue().list_names()
        ]
        self.fields["agent"].widget.choices = [("", "Choose"), (EVERY, "every agent"), *names]

    def clean(self) -> None:
        """Require a choice, and for all agents the typed confirmation."""
        agent, confirmation = self.cleaned_data["agent"], self.cleaned_data["confirm"]
        if not agent:
            self.add_error("agent", "must be chosen: nothing was stopped")
        if agent == EVERY and confirmation.lower() != CONFIRMATION:
            self.add_error("confirm", "here: nothing was stopped")


@admins.guard_page
def list_switches(request: HttpRequest) -> HttpResponse:
    """Show the engaged kill switches, the form, and the history."""
    return _show_page(request, SwitchForm())


@admins.action
def engage(request: HttpRequest) -> HttpResponse:
    """Engage a kill switch for an agent, or for all."""
    form = SwitchForm(request.POST)
    if not form.is_valid():
        return _show_page(request, form, status=422)
    agent, reason = form.cleaned_data["agent"], form.cleaned_data["reason"]
    agent = "" if agent == EVERY else agent
    try:
        switch = kill_switches.engage(agent=agent, reason=reason, actor=read_actor(request))
    except InvalidInput as problem:
        form.mark(problem)
        return _show_page(request, form, status=problem.status)
    except (UnknownAgent, SwitchAlreadyEngaged) as problem:
        return _show_page(request, form, problem.detail, status=problem.status)
    message = f"{switch.agent or 'Every agent'} is stopped."
    return redirect_with(request, message, "kill_switches")


@admins.action
def disengage(request: HttpRequest, stop: int) -> HttpResponse:
    """Disengage a kill switch."""
    try:
        switch = kill_switches.disengage(stop=stop, actor=read_actor(request))
    except SwitchNotEngaged as problem:
        return _show_page(request, SwitchForm(), str(problem), status=409)
    return redirect_with(request, f"{switch.agent or 'Every agent'} resumed.", "kill_switches")


def _show_page(
    request: HttpRequest, form: SwitchForm, problem: str = "", *, status: int = 200
) -> HttpResponse:
    actor = read_actor(request)
    context = {
        "section": "kill_switches",
        "active": kill_switches.list_switches(lifted=False, actor=actor),
        "past": kill_switches.list_switches(lifted=True, actor=actor),
        "form": form,
        "problem": problem,
    }
    return render(request, "runs/kill_switches.html", context, status=status)

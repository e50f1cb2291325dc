"""The pages with the form that makes or changes a schedule or a trigger, or tries a trigger on events before that."""

from collections.abc import Mapping
from typing import Any, Protocol
from uuid import UUID, uuid4

from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from runtime.errors import KeyMissing, NoSuchSchedule, NoSuchTrigger, RequestError, Tampered
from runtime.ports import wiring
from runtime.store.tables.triggers.triggers import TriggerKind
from runtime.triggers import changes, listing, trials
from runtime.web.pages.triggers import event_form, schedule_form
from runtime.web.pages.triggers.form_state import FormState
from runtime.web.pages.triggers.pages import show, starters_only
from runtime.web.requests import actor_of


class TriggerForm(Protocol):
    """The form of a kind of triggers. Both modules that are imported above are one."""

    def blank(self, agent: str, schema: Mapping[str, Any]) -> FormState:
        """Return the form for a new one."""

    def fill(self, definition: Any, schema: Mapping[str, Any]) -> FormState:
        """Return the form for one that is there."""

    def read(
        self, agent: str, schema: Mapping[str, Any], posted: QueryDict, definition: Any
    ) -> FormState:
        """Return the form as sent, with its unreadable fields, and the definition in `sent`."""

    def mark(self, form: FormState, exc: RequestError, posted: QueryDict) -> None:
        """Write a refusal to its fields, if it names some."""


FORMS: Mapping[TriggerKind, TriggerForm] = {
    TriggerKind.SCHEDULE: schedule_form,
    TriggerKind.EVENT: event_form,
}


@require_http_methods(["GET", "HEAD", "POST"])
@starters_only
def new(request: HttpRequest, kind: TriggerKind) -> HttpResponse:
    """Choose an agent, then fill in, try or send the form."""
    agent = request.POST.get("agent") or request.GET.get("agent") or ""
    schema = listing.input_schema(agent)
    if schema is None:
        return _choose_agent(request, kind, agent)
    if request.method != "POST":
        return _page(request, kind, FORMS[kind].blank(agent, schema))
    return _submit(request, kind, FORMS[kind].read(agent, schema, request.POST, None))


@require_http_methods(["GET", "HEAD", "POST"])
@starters_only
def change(request: HttpRequest, kind: TriggerKind, id: UUID) -> HttpResponse:
    """Show what a schedule or trigger says, try another definition, or change it."""
    try:
        definition = listing.read_one(kind, id, actor_of(request)).definition
    except (NoSuchSchedule, NoSuchTrigger) as exc:
        raise Http404 from exc
    except (Tampered, KeyMissing):
        return show(request, kind, id)
    schema = listing.input_schema(definition.agent) or {}
    if request.method != "POST":
        return _page(request, kind, FORMS[kind].fill(definition, schema), id)
    form = FORMS[kind].read(definition.agent, schema, request.POST, definition)
    return _submit(request, kind, form, id)


def _submit(
    request: HttpRequest, kind: TriggerKind, form: FormState, id: UUID | None = None
) -> HttpResponse:
    """Try, make or change what the form says; or show the form again, with each problem at its field."""
    if form.problems:
        return _page(request, kind, form, id, status=422)
    actor = actor_of(request)
    try:
        if kind is TriggerKind.EVENT and "try" in request.POST:
            form.trials = trials.try_definition(form.sent, actor, sample=form.sample, id=id)
            return _page(request, kind, form, id)
        if id is None:
            number = _number(request)
            return redirect(
                kind.noun, changes.create(kind, sent=form.sent, actor=actor, form=number)
            )
        changes.change(kind, id=id, sent=form.sent, actor=actor)
    except (NoSuchSchedule, NoSuchTrigger) as exc:
        raise Http404 from exc
    except RequestError as exc:
        FORMS[kind].mark(form, exc, request.POST)
        form.refusal = None if form.problems else exc
        return _page(request, kind, form, id, status=exc.status)
    return redirect(kind.noun, id)


def _choose_agent(request: HttpRequest, kind: TriggerKind, unknown: str) -> HttpResponse:
    """Show the agents; `unknown` is a name that none of them has, or empty."""
    context = {
        "section": f"{kind.noun}s",
        "noun": kind.noun,
        "agents": wiring.catalogue().names(),
        "unknown": unknown,
    }
    return render(request, "triggers/agent.html", context, status=404 if unknown else 200)


def _number(request: HttpRequest) -> UUID:
    """Return the number of the form: sent twice, it makes one schedule or trigger."""
    try:
        return UUID(request.POST.get("form", ""))
    except ValueError:
        return uuid4()


def _page(
    request: HttpRequest,
    kind: TriggerKind,
    form: FormState,
    id: UUID | None = None,
    *,
    status: int = 200,
) -> HttpResponse:
    context = {
        "section": f"{kind.noun}s",
        "noun": kind.noun,
        "id": id,
        "number": _number(request),
        "form": form,
        "fields": f"triggers/_{kind.noun}_fields.html",
    }
    return render(request, "triggers/form.html", context, status=status)

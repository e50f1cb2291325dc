"""The pages of schedules and triggers: the list, one with its history and what people may do with it, and the form."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone

from runtime.core.documents import external_call
from runtime.errors import KeyMissing, NoSuchSchedule, NoSuchTrigger, RequestError, Tampered
from runtime.ports import wiring
from runtime.store.tables.trigger_rows import TriggerKind
from runtime.triggers import changes, listing, trials, webhooks
from runtime.web.pages import trigger_forms
from runtime.web.requests import Audience, read_actor, read_form_number, read_number, redirect_with
from runtime.web.schema_form import as_typed

# Only people who may start runs have schedules and triggers.
starters = Audience(lambda actor: wiring.resolve_access().require(actor, changes.SCOPE))

CHANGES: Mapping[str, tuple[Callable[..., object], str]] = {
    "pause": (changes.pause, "It is paused."),
    "resume": (changes.resume, "It is resumed."),
    "end": (changes.end_trigger, "It has ended."),
}


@starters.guard_page
def show_list(request: HttpRequest, kind: TriggerKind) -> HttpResponse:
    """List the schedules or triggers that this person may read."""
    rows, cut = listing.read_list(kind, read_actor(request))
    context = {"section": f"{kind.noun}s", "noun": kind.noun, "triggers": rows, "cut": cut}
    return render(request, "triggers/list.html", context)


@starters.guard_page
def show_trigger(request: HttpRequest, kind: TriggerKind, id: UUID) -> HttpResponse:
    """Show one schedule or trigger."""
    return show(request, kind, id)


@starters.action
def change_state(request: HttpRequest, kind: TriggerKind, id: UUID, act: str) -> HttpResponse:
    """Pause, resume or end a schedule or trigger."""
    function, message = CHANGES[act]
    return _act(request, kind, id, partial(function, kind), message)


@starters.action
def run_now(request: HttpRequest, id: UUID) -> HttpResponse:
    """Start a run at once; the same page starts one run, however often it is sent."""
    act = partial(changes.run_now, at=request.POST.get("at") or None)
    return _act(request, TriggerKind.SCHEDULE, id, act, "A run was started.")


@starters.action
def backfill(request: HttpRequest, id: UUID) -> HttpResponse:
    """Start runs for past times."""
    first, until = request.POST.get("first"), request.POST.get("until")
    act = partial(changes.backfill, first=first, until=until)
    message = "The past times of this range wait for their turn."
    return _act(request, TriggerKind.SCHEDULE, id, act, message)


@starters.action
def retry_event(request: HttpRequest, id: UUID, number: int) -> HttpResponse:
    """Handle an event again that started no run."""
    act = partial(changes.retry, number=number)
    return _act(request, TriggerKind.EVENT, id, act, "The event is handled again.")


@starters.action
def make_webhook(request: HttpRequest, id: UUID) -> HttpResponse:
    """Give a trigger a webhook, and show its address and secret this once."""
    sent: dict[str, Any] = {
        name: request.POST.get(name, "") for name in ("scheme", "header", "secret")
    }
    return _act(request, TriggerKind.EVENT, id, partial(webhooks.make, **sent), "")


@starters.action
def remove_webhook(request: HttpRequest, id: UUID) -> HttpResponse:
    """Remove the webhook of a trigger."""
    return _act(request, TriggerKind.EVENT, id, webhooks.remove, "The webhook is removed.")


@starters.form
def create_trigger(request: HttpRequest, kind: TriggerKind) -> HttpResponse:
    """Choose an agent, then fill in, try or send the form."""
    agent = request.POST.get("agent") or request.GET.get("agent") or ""
    schema = listing.find_input_schema(agent)
    if schema is None:
        context = {
            "section": f"{kind.noun}s",
            "noun": kind.noun,
            "agents": [
                *filter(external_call.is_started_by_people, wiring.resolve_catalogue().list_names())
            ],
            "called": wiring.resolve_catalogue().list_called(),
            "unknown": agent,
        }
        return render(request, "triggers/agent.html", context, status=404 if agent else 200)
    if request.method != "POST":
        return _show_form(request, kind, trigger_forms.FORMS[kind](agent, schema))
    return _submit(request, kind, trigger_forms.FORMS[kind](agent, schema, request.POST))


@starters.form
def change(request: HttpRequest, kind: TriggerKind, id: UUID) -> HttpResponse:
    """Show what a schedule or trigger says, try another definition, or change it."""
    try:
        definition = listing.read_one(kind, id, read_actor(request)).definition
    except (Tampered, KeyMissing):
        return show(request, kind, id)
    schema = listing.find_input_schema(definition.agent) or {}
    if request.method != "POST":
        return _show_form(
            request,
            kind,
            trigger_forms.FORMS[kind](definition.agent, schema, definition=definition),
            id,
        )
    form = trigger_forms.FORMS[kind](definition.agent, schema, request.POST, definition)
    return _submit(request, kind, form, id)


def show(
    request: HttpRequest,
    kind: TriggerKind,
    id: UUID,
    problem: RequestError | None = None,
    webhook: webhooks.NewWebhook | None = None,
) -> HttpResponse:
    """Show one schedule or trigger, with the problem of an act, or a webhook that was just made."""
    unverified, view = "", None
    before = read_number(request.GET.get("before", ""), digits=18)
    try:
        view = listing.read_one(kind, id, read_actor(request), before)
    except (Tampered, KeyMissing) as exc:
        unverified = listing.describe_problem(exc)
    context: dict[str, Any] = {
        "section": f"{kind.noun}s",
        "noun": kind.noun,
        "trigger": view,
        "unverified": unverified,
        "problem": problem,
        "paged": "before" in request.GET,
    }
    if kind is TriggerKind.SCHEDULE:
        context |= {
            "at": timezone.now().isoformat(),
            "max_backfill": changes.MAX_BACKFILL,
            "backfill": trigger_forms.BackfillForm(request.POST or None),
        }
    else:
        path = webhook and reverse("api:deliver_webhook", args=[webhook.address])
        context |= {
            "mapping": view and as_typed("json", view.definition.mapping),
            "retried": changes.RETRIED,
            "made": webhook,
            "address": path and request.build_absolute_uri(path),
            "form": trigger_forms.WebhookForm(request.POST or None),
        }
    status = 200 if problem is None else problem.status
    return render(request, f"triggers/{kind.noun}.html", context, status=status)


def _act(
    request: HttpRequest, kind: TriggerKind, id: UUID, act: Callable[..., object], message: str
) -> HttpResponse:
    """Carry out an act and show the page with its message, or with the refusal, or with a new webhook."""
    try:
        result = act(id=id, actor=read_actor(request))
    except (NoSuchSchedule, NoSuchTrigger) as exc:
        raise Http404 from exc
    except RequestError as refused:
        return show(request, kind, id, refused)
    except (Tampered, KeyMissing):
        return show(request, kind, id)
    if isinstance(result, webhooks.NewWebhook):
        return show(request, kind, id, webhook=result)
    return redirect_with(request, message, kind.noun, id)


def _submit(
    request: HttpRequest, kind: TriggerKind, form: trigger_forms.TriggerForm, id: UUID | None = None
) -> HttpResponse:
    """Try, make or change what the form says; or show the form again, with each problem at its field."""
    if not form.is_valid():
        return _show_form(request, kind, form, id, status=422)
    actor = read_actor(request)
    try:
        if isinstance(form, trigger_forms.ScheduleForm) and "try" in request.POST:
            form.next_times = trials.try_times(form.definition, actor)
            return _show_form(request, kind, form, id)
        if kind is TriggerKind.EVENT and "try" in request.POST:
            sample = form.cleaned_data["sample"]
            form.trials = trials.try_definition(form.definition, actor, sample=sample, id=id)
            return _show_form(request, kind, form, id)
        if id is None:
            number = read_form_number(request)
            return redirect(
                kind.noun, changes.create(kind, sent=form.definition, actor=actor, form=number)
            )
        changes.change(kind, id=id, sent=form.definition, actor=actor)
    except (NoSuchSchedule, NoSuchTrigger) as exc:
        raise Http404 from exc
    except RequestError as exc:
        form.mark(exc)
        form.refusal = None if form.errors else exc
        return _show_form(request, kind, form, id, status=exc.status)
    return redirect(kind.noun, id)


def _show_form(
    request: HttpRequest,
    kind: TriggerKind,
    form: trigger_forms.TriggerForm,
    id: UUID | None = None,
    *,
    status: int = 200,
) -> HttpResponse:
    context = {
        "section": f"{kind.noun}s",
        "noun": kind.noun,
        "id": id,
        "number": read_form_number(request),
        "form": form,
    }
    return render(request, "triggers/form.html", context, status=status)

"""The pages of triggers: the list, and one with its events and what people may do with it."""

from collections.abc import Callable
from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from runtime.errors import KeyMissing, NoSuchTrigger, RequestError, Tampered
from runtime.ports.access import Actor
from runtime.triggers.events import changes, listing
from runtime.triggers.webhooks import changes as webhook_changes
from runtime.triggers.webhooks.changes import NewWebhook
from runtime.triggers.webhooks.signatures import Scheme
from runtime.web.pages.triggers.acts import done, starters
from runtime.web.requests import actor_of
from runtime.web.schema_fields import as_typed


@require_safe
@starters
def triggers(request: HttpRequest) -> HttpResponse:
    """List the triggers that this person may read."""
    found, cut = listing.rows(actor_of(request))
    context = {"section": "triggers", "triggers": found, "cut": cut}
    return render(request, "triggers/list.html", context)


@require_safe
@starters
def trigger(request: HttpRequest, id: UUID) -> HttpResponse:
    """Show one trigger."""
    return page(request, id)


@require_POST
@starters
def pause(request: HttpRequest, id: UUID) -> HttpResponse:
    """Pause a trigger."""
    return _done(request, id, lambda actor: changes.pause(id=id, actor=actor), "It is paused.")


@require_POST
@starters
def resume(request: HttpRequest, id: UUID) -> HttpResponse:
    """Resume a trigger."""
    return _done(request, id, lambda actor: changes.resume(id=id, actor=actor), "It is resumed.")


@require_POST
@starters
def end(request: HttpRequest, id: UUID) -> HttpResponse:
    """End a trigger."""
    return _done(request, id, lambda actor: changes.end(id=id, actor=actor), "It has ended.")


@require_POST
@starters
def retry(request: HttpRequest, id: UUID, number: int) -> HttpResponse:
    """Handle an event again that started no run."""

    def act(actor: Actor) -> None:
        changes.retry(id=id, number=number, actor=actor)

    return _done(request, id, act, "The event is handled again.")


@require_POST
@starters
def make_webhook(request: HttpRequest, id: UUID) -> HttpResponse:
    """Give a trigger a webhook, and show its address and secret this once."""
    made: list[NewWebhook] = []

    def act(actor: Actor) -> None:
        given = {name: request.POST.get(name, "") for name in ("scheme", "header", "secret")}
        made.append(webhook_changes.make(id=id, actor=actor, **given))

    answer = _done(request, id, act, "")
    return page(request, id, made=made[0]) if made else answer


@require_POST
@starters
def remove_webhook(request: HttpRequest, id: UUID) -> HttpResponse:
    """Remove the webhook of a trigger."""

    def act(actor: Actor) -> None:
        webhook_changes.remove(id=id, actor=actor)

    return _done(request, id, act, "The webhook is removed.")


def page(
    request: HttpRequest,
    id: UUID,
    problem: RequestError | None = None,
    *,
    made: NewWebhook | None = None,
) -> HttpResponse:
    """Show one trigger, with the problem of an act, or a webhook that was just made."""
    unverified, shown = "", None
    try:
        shown = listing.one(id, actor_of(request), _before(request))
    except NoSuchTrigger as exc:
        raise Http404 from exc
    except (Tampered, KeyMissing) as exc:
        unverified = f"{exc}. It starts nothing."
    context = {
        "section": "triggers",
        "trigger": shown,
        "mapping": None if shown is None else as_typed("json", shown.definition.mapping),
        "retried": changes.RETRIED,
        "unverified": unverified,
        "problem": problem,
        "made": made,
        "address": made and request.build_absolute_uri(reverse("api:deliver", args=[made.address])),
        "schemes": list(Scheme),
        "sent": request.POST,
        "paged": "before" in request.GET,
    }
    status = 200 if problem is None else problem.status
    return render(request, "triggers/trigger.html", context, status=status)


def _done(request: HttpRequest, id: UUID, act: Callable[[Actor], None], said: str) -> HttpResponse:
    return done(request, id, act, said, page=page, to="trigger")


def _before(request: HttpRequest) -> int | None:
    found = request.GET.get("before", "")
    return int(found) if found.isascii() and found.isdigit() and len(found) < 19 else None

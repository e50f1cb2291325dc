"""Carries out an act on a schedule or a trigger for its page, or has the page say why it is refused."""

from collections.abc import Callable
from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from runtime.errors import KeyMissing, NoSuchSchedule, NoSuchTrigger, RequestError, Tampered
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.triggers.changes import SCOPE
from runtime.web.requests import actor_of, visible_to

# Only people who may start runs have schedules and triggers.
starters = visible_to(lambda actor: wiring.access().require(actor, SCOPE))

Page = Callable[[HttpRequest, UUID, RequestError | None], HttpResponse]


def done(
    request: HttpRequest, id: UUID, act: Callable[[Actor], None], said: str, *, page: Page, to: str
) -> HttpResponse:
    """Carry out an act, and redirect to the route `to`; or show `page` with the refusal.

    Raise Http404 for a missing one. `said` is the message of success, empty for none.
    """
    try:
        act(actor_of(request))
    except (NoSuchSchedule, NoSuchTrigger) as exc:
        raise Http404 from exc
    except RequestError as refused:
        return page(request, id, refused)
    except (Tampered, KeyMissing):
        return page(request, id, None)
    if said:
        messages.success(request, said)
    return redirect(to, id)


def choose_agent(request: HttpRequest, unknown: str, section: str, what: str) -> HttpResponse:
    """Show the agents for a new one of the section; `unknown` is a name that none of them has, or empty."""
    context = {
        "section": section,
        "what": what,
        "agents": wiring.catalogue().names(),
        "unknown": unknown,
    }
    return render(request, "triggers/agent.html", context, status=404 if unknown else 200)

"""The pages of schedules: the list, and one with its next times, its history and what people may do with it."""

from collections.abc import Callable
from datetime import datetime
from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from runtime.errors import KeyMissing, NoSuchSchedule, RequestError, Tampered
from runtime.ports.access import Actor
from runtime.triggers import changes, listing
from runtime.web.pages.triggers.acts import done, starters
from runtime.web.requests import actor_of


@require_safe
@starters
def schedules(request: HttpRequest) -> HttpResponse:
    """List the schedules that this person may read."""
    found, cut = listing.rows(actor_of(request))
    context = {"section": "schedules", "schedules": found, "cut": cut}
    return render(request, "schedules/list.html", context)


@require_safe
@starters
def schedule(request: HttpRequest, id: UUID) -> HttpResponse:
    """Show one schedule."""
    return page(request, id)


@require_POST
@starters
def pause(request: HttpRequest, id: UUID) -> HttpResponse:
    """Pause a schedule."""
    return _done(request, id, lambda actor: changes.pause(id=id, actor=actor), "It is paused.")


@require_POST
@starters
def resume(request: HttpRequest, id: UUID) -> HttpResponse:
    """Resume a schedule."""
    return _done(request, id, lambda actor: changes.resume(id=id, actor=actor), "It is resumed.")


@require_POST
@starters
def end(request: HttpRequest, id: UUID) -> HttpResponse:
    """End a schedule."""
    return _done(request, id, lambda actor: changes.end(id=id, actor=actor), "It has ended.")


@require_POST
@starters
def run_now(request: HttpRequest, id: UUID) -> HttpResponse:
    """Start a run at once; the same page starts one run, however often it is sent."""
    at = request.POST.get("at") or None

    def act(actor: Actor) -> None:
        changes.run_now(id=id, actor=actor, at=at)

    return _done(request, id, act, "A run was started.")


@require_POST
@starters
def backfill(request: HttpRequest, id: UUID) -> HttpResponse:
    """Start runs for past times."""
    found: list[int] = []

    def act(actor: Actor) -> None:
        first, until = request.POST.get("first"), request.POST.get("until")
        found.append(changes.backfill(id=id, first=first, until=until, actor=actor))

    return _done(request, id, act, "The past times of this range wait for their turn.")


def page(request: HttpRequest, id: UUID, problem: RequestError | None = None) -> HttpResponse:
    """Show one schedule, with the problem of an act."""
    actor, unverified, shown = actor_of(request), "", None
    try:
        shown = listing.one(id, actor, _before(request))
    except NoSuchSchedule as exc:
        raise Http404 from exc
    except (Tampered, KeyMissing) as exc:
        unverified = listing.problem_of(exc)
    context = {
        "section": "schedules",
        "schedule": shown,
        "unverified": unverified,
        "problem": problem,
        "at": timezone.now().isoformat(),
        "first": request.POST.get("first", ""),
        "until": request.POST.get("until", ""),
        "max_backfill": changes.MAX_BACKFILL,
        "paged": "before" in request.GET,
    }
    status = 200 if problem is None else problem.status
    return render(request, "schedules/schedule.html", context, status=status)


def _done(request: HttpRequest, id: UUID, act: Callable[[Actor], None], said: str) -> HttpResponse:
    return done(request, id, act, said, page=page, to="schedule")


def _before(request: HttpRequest) -> datetime | None:
    try:
        found = datetime.fromisoformat(request.GET.get("before", ""))
    except ValueError:
        return None
    return found if found.tzinfo is not None else None

"""The pages about records: two runs side by side, and a run replayed by a worker with today's code."""

from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.cache import patch_vary_headers
from django.views.decorators.http import require_http_methods, require_safe

from runtime.control import replay as replays
from runtime.control.access import readable
from runtime.errors import RequestError
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.queries.history import comparison
from runtime.queries.version_diff import VersionDifference, differences
from runtime.store.tables.jobs.replays import StoredReplay
from runtime.web.pages import query_params
from runtime.web.requests import actor_of, admins_only


@require_safe
@login_required
def compare(request: HttpRequest, run: UUID, other: UUID) -> HttpResponse:
    """Compare two runs. A person who may not read both gets 404."""
    actor = actor_of(request)
    context = {
        "section": "runs",
        "shown": comparison.compare(readable(run, actor), readable(other, actor)),
        "is_admin": wiring.access().reads_continuations(actor),
    }
    return render(request, "runs/comparison.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@admins_only
def replay(request: HttpRequest, run: UUID) -> HttpResponse:
    """Show the chosen or last replay of a run, or have a worker replay it.

    For a page that is already open, only the part that changes.
    """
    actor = actor_of(request)
    readable(run, actor)
    if request.method != "POST":
        return _page(request, run, actor)
    try:
        replays.ask(run=run, actor=actor)
    except RequestError as refused:
        return _page(request, run, actor, refused)
    return redirect("replay", run=run)


def _page(
    request: HttpRequest, run: UUID, actor: Actor, refused: RequestError | None = None
) -> HttpResponse:
    detail = readable(run, actor)
    listed = replays.listed(run=run, actor=actor)
    listed_replay = _find_listed(request, listed)
    stored = replays.find(run=run, replay=listed_replay.id, actor=actor) if listed_replay else None
    is_last = listed_replay is not None and listed_replay.id == listed[0].id
    context = {
        "section": "runs",
        "run": detail,
        "one": stored,
        "found": stored.found if stored else None,
        "changed": _changed(stored) if stored else [],
        "others": [other for other in listed if listed_replay and other.id != listed_replay.id],
        "is_last": is_last,
        "is_open": bool(listed) and listed[0].ended_at is None,
        "refused": refused,
    }
    live = query_params.is_htmx(request)
    answer = render(
        request,
        "runs/replay.html#live" if live else "runs/replay.html",
        context,
        status=refused.status if refused else 200,
    )
    patch_vary_headers(answer, ["HX-Request"])
    return answer


def _changed(stored: StoredReplay) -> list[tuple[str, tuple[VersionDifference, ...] | None]]:
    """Return the agents that were changed since the run, with the differences; None if a version is not known here."""
    changed = []
    for agent, (recorded, today) in sorted(stored.found.get("versions", {}).items()):
        if recorded != today:
            changes = wiring.catalogue().changes_between(agent, recorded, today)
            changed.append((agent, None if changes is None else differences(changes)))
    return changed


def _find_listed(request: HttpRequest, listed: list[StoredReplay]) -> StoredReplay | None:
    """Return the replay of the address, without one the last; None if there is none."""
    replay_id = request.GET.get("replay")
    if replay_id is None:
        return listed[0] if listed else None
    for stored in listed:
        if str(stored.id) == replay_id:
            return stored
    raise Http404

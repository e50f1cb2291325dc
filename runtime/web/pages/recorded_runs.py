"""The pages about records: two runs side by side, and a run replayed by a worker with today's code."""

from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from runtime.control import jobs
from runtime.control.access import readable
from runtime.errors import RequestError
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.reads import comparison
from runtime.reads.version_diff import VersionDifference, differences
from runtime.store.tables.jobs import ReplayRow
from runtime.web.pages import job_list
from runtime.web.requests import actor_of, admins_only


@require_safe
@login_required
def compare(request: HttpRequest, run: UUID, other: UUID) -> HttpResponse:
    """Compare two runs. A person who may not read both gets 404."""
    actor = actor_of(request)
    context = {
        "section": "runs",
        "comparison": comparison.compare(readable(run, actor), readable(other, actor)),
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
        jobs.replay_run(run=run, actor=actor)
    except RequestError as refused:
        return _page(request, run, actor, refused)
    return redirect("replay", run=run)


def _page(
    request: HttpRequest, run: UUID, actor: Actor, refused: RequestError | None = None
) -> HttpResponse:
    newest = jobs.list_replays(run=run, actor=actor)
    job = job_list.requested_job(request, "replay", newest)
    row = jobs.find_replay(run=run, replay=job.id, actor=actor) if job else None
    context = {
        "section": "runs",
        "run": readable(run, actor),
        "job": row,
        "comparison": row.comparison if row else None,
        "changed": _changed_agents(row) if row else [],
        "refused": refused,
        **job_list.list_context(row, newest),
    }
    return job_list.render_live(
        request, "runs/replay.html", context, refused.status if refused else 200
    )


def _changed_agents(row: ReplayRow) -> list[tuple[str, tuple[VersionDifference, ...] | None]]:
    """Return the agents that were changed since the run, with the differences; None if a version is not known here."""
    agents = []
    for agent, (recorded, today) in sorted(row.comparison.get("versions", {}).items()):
        if recorded != today:
            changes = wiring.catalogue().changes_between(agent, recorded, today)
            agents.append((agent, None if changes is None else differences(changes)))
    return agents

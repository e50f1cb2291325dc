"""The page that compares two runs."""

from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from runtime.control.access import readable
from runtime.ports import wiring
from runtime.queries.history import comparison
from runtime.web.requests import actor_of


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

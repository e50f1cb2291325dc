"""The page of one person's activity, for admins: decisions, runs, and changes of their rights."""

from datetime import UTC
from urllib.parse import urlencode

from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from approvals.people import account_list
from approvals.reads import filters, history
from approvals.rights import principals
from runtime.ports import wiring
from runtime.reads import runs
from runtime.web.requests import actor_of, admins_only

SHOWN = 10  # decisions, and runs


@require_safe
@admins_only
def activity(request: HttpRequest, person: str) -> HttpResponse:
    """Show what a person did last, and who changed their rights."""
    profile = account_list.person(person) if "\x00" not in person else None
    if profile is None:
        raise Http404
    actor = actor_of(request)
    criteria = filters.read_criteria({"person": person}, UTC)
    readable = wiring.access().readable_runs(actor)
    context = {
        "section": "people",
        "person": profile,
        "decisions": history.page(principals.principal_of(actor), criteria, limit=SHOWN).items,
        "runs": runs.runs_page(readable & Q(requester=person), limit=SHOWN).items,
        "changes": account_list.right_changes(person),
        "runs_query": urlencode({"q": f"by:{person}"}),
    }
    return render(request, "accounts/activity.html", context)

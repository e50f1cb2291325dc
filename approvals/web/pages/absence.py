"""The part of the account page about being away, and its forms."""

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from approvals.people import absences
from approvals.reads import deciders
from approvals.rights import principals
from approvals.rules import roles
from approvals.web import zone
from runtime.errors import InvalidInput


def context(request: HttpRequest, problem: InvalidInput | None = None) -> dict[str, Any]:
    """Read the absences of the reader and of those whose deputy they are."""
    me = principals.principal_of(principals.actor_of(request.user))
    own, others = absences.concerning(request.user.get_username())
    decides = me is not None and roles.risks_decided_by(me.groups)
    names = deciders.names() if decides else []
    return {
        "away": own,
        "standing_in": others,
        "deputies": [name for name in names if name != request.user.get_username()],
        "away_problem": problem,
        "away_days": (("starts", "First day"), ("ends", "Last day")),
        "away_most": absences.MAX_DAYS,
        "typed": request.POST,
    }


def announce(request: HttpRequest) -> absences.Away:
    """Record the absence of the form. Raises InvalidInput."""
    of = zone.of_reader(request)
    return absences.announce(
        deputy=request.POST.get("deputy", ""),
        starts=zone.day(request.POST.get("starts", ""), "starts", of),
        ends=zone.day(request.POST.get("ends", ""), "ends", of, after=1),
        actor=principals.actor_of(request.user),
    )


@require_POST
@login_required
def end(request: HttpRequest, person: str) -> HttpResponse:
    """End an absence at once: the reader's own, one in which they are the deputy, or any as an admin."""
    me = request.user.get_username()
    own, others = absences.concerning(me)
    if absences.end(person, actor=principals.actor_of(request.user)):
        messages.success(request, f"The absence of {person} has ended.")
    theirs = {one.person for one in (own, *others) if one}
    return redirect("account" if person in {me, *theirs} else "people")

"""The page of a person who starts runs: their requests, waiting (and for whom) or decided, and their runs."""

from django.contrib.auth.decorators import login_required
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from approvals.reads import deciders, history, inbox
from approvals.reads.approval_views import ApprovalView
from approvals.reads.filters import DecisionFilter
from approvals.rights import principals
from approvals.web.pages.history import decision_rows
from runtime.reads import runs
from runtime.web.requests import actor_of

WAITING = 20  # requests of the page
WITH_PEOPLE = 5  # of these, with the people who could decide: their rights are verified
DECIDED, RUNS, NAMES = 20, 10, 3  # NAMES are people that a request names


@require_safe
@login_required
def mine(request: HttpRequest) -> HttpResponse:
    """Show what became of this person's requests."""
    actor = actor_of(request)
    principal = principals.principal_of(actor)
    waiting = inbox.requested_by(principal, WAITING + 1) if principal else ()
    decided = history.page(principal, DecisionFilter(by=actor.person), limit=DECIDED)
    pending = list[tuple[ApprovalView, str]]()  # each with the first people who could decide it
    for number, item in enumerate(waiting[:WAITING]):
        people = deciders.outlook_of(item.stored).people if number < WITH_PEOPLE else ()
        names = ", ".join(people[:NAMES])
        pending.append((item, f"{names} and others" if len(people) > NAMES else names))
    context = {
        "section": "mine",
        "pending": pending,
        "more_wait": len(waiting) > WAITING,
        "most_waiting": WAITING,
        "with_people": WITH_PEOPLE,
        "decided": list(decision_rows(decided.items, principal)),
        "more_decided": decided.next is not None,
        "runs": runs.runs_page(Q(requester=actor.person), limit=RUNS).items,
        "person": actor.person,
    }
    return render(request, "approvals/mine.html", context)

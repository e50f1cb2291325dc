"""What every form of a decision does: the act, then the page that fits what came of it."""

from collections.abc import Callable
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from approvals import permissions, queries
from approvals.errors import (
    AlreadyDecided,
    Cancelled,
    DigestMismatch,
    Expired,
    Invalid,
    TamperedWith,
    TooEarly,
)
from approvals.views import aftermath
from approvals.views.picture import too_late
from runtime.core.enums import Verdict
from runtime.errors import Forbidden
from runtime.ports.access import Actor

# What the person who decides can mend, or has to know.
Problem = Forbidden | TamperedWith | DigestMismatch | TooEarly | Invalid


def carry_out(
    request: HttpRequest,
    approval: UUID,
    verdict: Verdict,
    *,
    act: Callable[[Actor], object],
    page: Callable[[HttpRequest, queries.Approval, Actor, Problem], HttpResponse],
    said: tuple[str, str],
) -> HttpResponse:
    """Carry out a decision. `act` decides, `page` shows the form again with the problem.

    `said` words the decision, and what follows if nothing holds it up.
    """
    actor = permissions.actor_of(request.user)
    try:
        act(actor)
    except (AlreadyDecided, Cancelled, Expired) as exc:
        return too_late(request, queries.approval(approval, actor=actor), verdict, exc)
    except (Forbidden, TamperedWith, DigestMismatch, TooEarly, Invalid) as exc:
        return page(request, queries.approval(approval, actor=actor), actor, exc)
    messages.success(request, aftermath.said(queries.approval(approval, actor=actor), *said))
    return redirect("approval", approval=approval)

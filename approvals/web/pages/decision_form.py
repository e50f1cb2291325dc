"""Handles the forms of decisions: records the decision, then shows the page for its result."""

from collections.abc import Callable
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from approvals.errors import (
    AlreadyDecided,
    Cancelled,
    DigestMismatch,
    Expired,
    TamperedWith,
    TooEarly,
)
from approvals.permissions import principals
from approvals.queries import requests
from approvals.web.pages import call_status
from approvals.web.pages.request_page import already_closed
from runtime.core.enums import Verdict
from runtime.errors import Forbidden, InvalidInput
from runtime.ports.access import Actor

# Errors that the reviewer can correct or must read.
Problem = Forbidden | TamperedWith | DigestMismatch | TooEarly | InvalidInput


def handle_decision(
    request: HttpRequest,
    approval: UUID,
    verdict: Verdict,
    *,
    act: Callable[[Actor], object],
    page: Callable[[HttpRequest, requests.Approval, Actor, Problem], HttpResponse],
    said: tuple[str, str],
) -> HttpResponse:
    """Handle a decision. `act` records it, `page` shows the form again with the problem.

    `said` holds the words for the decision and for its effect if the run is neither paused nor stopped.
    """
    actor = principals.actor_of(request.user)
    try:
        act(actor)
    except (AlreadyDecided, Cancelled, Expired) as exc:
        return already_closed(request, requests.approval(approval, actor=actor), verdict, exc)
    except (Forbidden, TamperedWith, DigestMismatch, TooEarly, InvalidInput) as exc:
        return page(request, requests.approval(approval, actor=actor), actor, exc)
    messages.success(
        request, call_status.outcome_text(requests.approval(approval, actor=actor), *said)
    )
    return redirect("approval", approval=approval)

"""Handles the forms of a request that decide nothing: claims, hand-overs, comments, and the presence of open pages."""

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_http_methods, require_POST

from approvals.errors import AlreadyCancelled, AlreadyClaimed, AlreadyDecided, Expired
from approvals.queries import requests
from approvals.rights import principals
from approvals.teamwork import claims, comments, handovers, presence
from approvals.web import place as places
from approvals.web.parts.teamwork import context
from approvals.web.request.request_page import to_page
from runtime.errors import InvalidInput
from runtime.ports.access import Actor
from runtime.web.requests import form_text


@require_POST
@login_required
def claim(request: HttpRequest, approval: UUID) -> HttpResponse:
    """Claim the request for ten minutes."""
    try:
        claims.claim(approval_id=approval, actor=_actor(request))
        messages.success(request, "Claimed: others see for 10 minutes that you look at it.")
    except (AlreadyClaimed, AlreadyDecided, AlreadyCancelled, Expired) as exc:
        messages.error(request, exc.detail)
    return to_page(request, approval)


@require_POST
@login_required
def release(request: HttpRequest, approval: UUID) -> HttpResponse:
    """Release the request."""
    claims.release(approval_id=approval, actor=_actor(request))
    messages.success(request, "Released.")
    return to_page(request, approval)


@require_POST
@login_required
def comment(request: HttpRequest, approval: UUID) -> HttpResponse:
    """Add a comment, or show the form again with its text and the error."""
    actor, text = _actor(request), form_text(request.POST, "text")
    try:
        comments.add(approval_id=approval, text=text, actor=actor)
    except InvalidInput as exc:
        shown = requests.approval(approval, actor=actor)
        found = {"approval": shown, "text": text, "problem": exc, **_frame(request, shown)}
        return render(request, "approvals/comment.html", found, status=exc.status)
    messages.success(request, "Your comment is added. The agent does not receive it.")
    return to_page(request, approval)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def hand_over(request: HttpRequest, approval: UUID) -> HttpResponse:
    """Show the form of a hand-over, or hand the request over."""
    actor, problem = _actor(request), None
    shown = requests.approval(approval, actor=actor)
    if request.method == "POST":
        to, note = request.POST.get("to", ""), form_text(request.POST, "note")
        try:
            handovers.hand_over(approval_id=approval, to=to, note=note, actor=actor)
        except (AlreadyClaimed, AlreadyDecided, AlreadyCancelled, Expired) as exc:
            messages.error(request, f"Not handed over. {exc.detail}")
            return to_page(request, approval)
        except InvalidInput as exc:
            problem = exc
        else:
            messages.success(request, f"Handed to {to}. It is on their list.")
            return to_page(request, approval)
    elif shown.denial is not None or shown.status != "pending":
        return to_page(request, approval)
    people, away = handovers.receivers(shown.id, actor)
    found = {
        "approval": shown,
        "people": people,
        "away_now": away,
        "to": request.POST.get("to", ""),
        "note": form_text(request.POST, "note"),
        "max_note": handovers.MAX_NOTE,
        "problem": problem,
        **_frame(request, shown),
    }
    status = 200 if problem is None else problem.status
    return render(request, "approvals/hand_over.html", found, status=status)


@require_POST
@login_required
def here(request: HttpRequest, approval: UUID) -> HttpResponse:
    """Record that the reader has the page open, and answer with the line about other people."""
    shown = presence.seen(approval_id=approval, actor=_actor(request))
    found = {
        "approval": shown,
        "status": shown.status,
        "place": places.read(request).query,
        **context(request, shown),
    }
    return render(request, "approvals/_teamwork.html", found)


def _frame(request: HttpRequest, approval: requests.ApprovalView) -> dict[str, Any]:
    return {
        "section": "inbox",
        "place": places.read(request).query,
        "max_comment": comments.MAX_COMMENT,
        "status": approval.status,
    }


def _actor(request: HttpRequest) -> Actor:
    return principals.actor_of(request.user)

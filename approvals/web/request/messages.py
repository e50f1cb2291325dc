"""The part of the page that asks the agent about its call, and shows its answers."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_POST

from approvals.decisions.teamwork import inquire
from approvals.decisions.teamwork import send_message as send
from approvals.errors import (
    AlreadyCancelled,
    AlreadyDecided,
    Expired,
    TamperedWith,
    TooManyInquiries,
)
from approvals.reads import approval_views
from approvals.rights import principals
from approvals.web import list_position as places
from approvals.web.request.request_page import to_page
from runtime.core.values.limits import MAX_INQUIRIES, MAX_INQUIRY, MAX_MESSAGE
from runtime.errors import InvalidInput, RunEnded, TooManyUndelivered
from runtime.reads.inquiries import list_for_gate
from runtime.web.requests import form_text

FIELD = "question"


def context(approval: approval_views.ApprovalView, shared: Mapping[str, Any]) -> dict[str, Any]:
    """Build the context: the inquiries about the call, oldest first, and whether this reader may ask another one.

    `shared` is the context of the page so far.
    """
    inquiries = list_for_gate(
        shared["transcript"], shared["sent"], approval.gate, unsealed=approval.sees_held
    )
    may_ask = shared["status"] == "pending" and approval.denial is None and approval.is_of_call
    return {
        "inquiries": inquiries,
        "may_ask": may_ask and len(inquiries) < MAX_INQUIRIES,
        "asked_enough": may_ask and len(inquiries) >= MAX_INQUIRIES,
        "max_inquiry": MAX_INQUIRY,
        "max_inquiries": MAX_INQUIRIES,
    }


@require_POST
@login_required
def ask(request: HttpRequest, approval_id: UUID) -> HttpResponse:
    """Ask the agent, or show the form again with its text and the error."""
    actor, text = principals.actor_of(request.user), form_text(request.POST, FIELD)
    try:
        inquire(approval_id=approval_id, question=text, actor=actor)
    except InvalidInput as exc:
        approval = approval_views.approval(approval_id, actor=actor)
        context = {
            "section": "inbox",
            "approval": approval,
            "list_query": places.read_position(request).query,
            "text": text,
            "problem": exc,
            "max_inquiry": MAX_INQUIRY,
        }
        return render(request, "approvals/ask.html", context, status=exc.status)
    except (
        AlreadyDecided,
        AlreadyCancelled,
        Expired,
        RunEnded,
        TamperedWith,
        TooManyInquiries,
    ) as exc:
        messages.error(request, f"Not asked. {exc.detail}")
    else:
        messages.success(request, "Asked. The answer appears in this request, which stays open.")
    return to_page(request, approval_id)


@require_POST
@login_required
def write(request: HttpRequest, approval_id: UUID) -> HttpResponse:
    """Send the message, or show the form again with its text and the error."""
    actor, text = principals.actor_of(request.user), form_text(request.POST, "text")
    try:
        send(approval_id=approval_id, text=text, actor=actor)
    except (InvalidInput, TooManyUndelivered) as exc:
        problem = f"the text {exc.detail}." if isinstance(exc, InvalidInput) else exc.detail
        context = {
            "section": "inbox",
            "approval": approval_views.approval(approval_id, actor=actor),
            "list_query": places.read_position(request).query,
            "text": text,
            "problem": problem,
            "max_message": MAX_MESSAGE,
        }
        return render(request, "approvals/write.html", context, status=exc.status)
    except (AlreadyDecided, AlreadyCancelled, Expired, RunEnded, TamperedWith) as exc:
        messages.error(request, f"Not sent. {exc.detail}")
    else:
        messages.success(request, "Sent. You may still decide this request.")
    return to_page(request, approval_id)

"""The part of the page that asks the agent about its call, and shows its answers."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_POST

from approvals.decisions.inquire import inquire
from approvals.errors import (
    AlreadyCancelled,
    AlreadyDecided,
    Expired,
    TamperedWith,
    TooManyInquiries,
)
from approvals.queries import requests
from approvals.rights import principals
from approvals.web import place as places
from approvals.web.request.request_page import to_page
from runtime.core.values.enums import GateKind
from runtime.core.values.limits import MAX_INQUIRIES, MAX_INQUIRY
from runtime.errors import InvalidInput, RunEnded
from runtime.reads.inquiries import list_for_gate
from runtime.web.requests import form_text

FIELD = "question"


def context(approval: requests.ApprovalView, seen: Mapping[str, Any]) -> dict[str, Any]:
    """Build the context: the inquiries about the call, oldest first, and whether this reader may ask another one.

    `seen` is the context of the page so far.
    """
    asked = list_for_gate(
        seen["transcript"], seen["sent"], approval.gate, unsealed=approval.sees_held
    )
    may_ask = (
        seen["status"] == "pending"
        and approval.denial is None
        and approval.kind == GateKind.APPROVAL
    )
    return {
        "inquiries": asked,
        "may_ask": may_ask and len(asked) < MAX_INQUIRIES,
        "asked_enough": may_ask and len(asked) >= MAX_INQUIRIES,
        "max_inquiry": MAX_INQUIRY,
        "max_inquiries": MAX_INQUIRIES,
    }


@require_POST
@login_required
def ask(request: HttpRequest, approval: UUID) -> HttpResponse:
    """Ask the agent, or show the form again with its text and the error."""
    actor, text = principals.actor_of(request.user), form_text(request.POST, FIELD)
    try:
        inquire(approval_id=approval, question=text, actor=actor)
    except InvalidInput as exc:
        shown = requests.approval(approval, actor=actor)
        found = {
            "section": "inbox",
            "approval": shown,
            "place": places.read(request).query,
            "text": text,
            "problem": exc,
            "max_inquiry": MAX_INQUIRY,
        }
        return render(request, "approvals/ask.html", found, status=exc.status)
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
    return to_page(request, approval)

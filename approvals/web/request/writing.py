"""The form by which a person who may decide a request writes to its run."""

from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_POST

from approvals.decisions.writing import write as send
from approvals.errors import AlreadyCancelled, AlreadyDecided, Expired, TamperedWith
from approvals.queries import requests
from approvals.rights import principals
from approvals.web import place as places
from approvals.web.request.request_page import to_page
from runtime.core.values.limits import MAX_MESSAGE
from runtime.errors import InvalidInput, RunEnded, TooManyUndelivered
from runtime.web.requests import form_text


@require_POST
@login_required
def write(request: HttpRequest, approval: UUID) -> HttpResponse:
    """Send the message, or show the form again with its text and the error."""
    actor, text = principals.actor_of(request.user), form_text(request.POST, "text")
    try:
        send(approval_id=approval, text=text, actor=actor)
    except (InvalidInput, TooManyUndelivered) as exc:
        problem = f"the text {exc.detail}." if isinstance(exc, InvalidInput) else exc.detail
        found = {
            "section": "inbox",
            "approval": requests.approval(approval, actor=actor),
            "place": places.read(request).query,
            "text": text,
            "problem": problem,
            "max_message": MAX_MESSAGE,
        }
        return render(request, "approvals/write.html", found, status=exc.status)
    except (AlreadyDecided, AlreadyCancelled, Expired, RunEnded, TamperedWith) as exc:
        messages.error(request, f"Not sent. {exc.detail}")
    else:
        messages.success(request, "Sent. You may still decide this request.")
    return to_page(request, approval)

"""Handles the forms of a request that decide nothing: claims, hand-overs, comments, presence and messages."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from approvals.decisions import teamwork
from approvals.decisions.teamwork import extend as extend_deadline
from approvals.decisions.teamwork import inquire
from approvals.decisions.teamwork import send_message as send
from approvals.errors import AlreadyClaimed, AlreadyClosed, TamperedWith, TooManyInquiries
from approvals.reads import approval_views
from approvals.rights import principals
from approvals.web import list_position as places
from approvals.web.request.request_page import ExtensionForm, build_teamwork_context, to_page
from runtime.core.values.limits import MAX_INQUIRIES, MAX_INQUIRY, MAX_MESSAGE
from runtime.errors import InvalidInput, RequestError, RunEnded, TooManyUndelivered
from runtime.reads.transcript import list_inquiries
from runtime.web.requests import read_text, users


@users.action
def claim(request: HttpRequest, approval_id: UUID) -> HttpResponse:
    """Claim the request for ten minutes."""
    try:
        teamwork.claim(approval_id=approval_id, actor=principals.make_actor(request.user))
        messages.success(request, "Claimed: others see for 10 minutes that you look at it.")
    except (AlreadyClaimed, AlreadyClosed) as exc:
        messages.error(request, exc.detail)
    return to_page(request, approval_id)


@users.action
def release(request: HttpRequest, approval_id: UUID) -> HttpResponse:
    """Release the request."""
    teamwork.release(approval_id=approval_id, actor=principals.make_actor(request.user))
    messages.success(request, "Released.")
    return to_page(request, approval_id)


@users.action
def add_comment(request: HttpRequest, approval_id: UUID) -> HttpResponse:
    """Add a comment, or show the form again with its text and the error."""
    actor, text = principals.make_actor(request.user), read_text(request.POST, "text")
    try:
        teamwork.add_comment(approval_id=approval_id, text=text, actor=actor)
    except InvalidInput as exc:
        approval = approval_views.read_approval(approval_id, actor=actor)
        return _show_form(request, "comment", approval, exc, text=text)
    messages.success(request, "Your comment is added. The agent does not receive it.")
    return to_page(request, approval_id)


@users.form
def hand_over(request: HttpRequest, approval_id: UUID) -> HttpResponse:
    """Show the form of a hand-over, or hand the request over."""
    actor, problem = principals.make_actor(request.user), None
    approval = approval_views.read_approval(approval_id, actor=actor)
    if request.method == "POST":
        to, note = request.POST.get("to", ""), read_text(request.POST, "note")
        try:
            teamwork.hand_over(approval_id=approval_id, to=to, note=note, actor=actor)
        except (AlreadyClaimed, AlreadyClosed) as exc:
            messages.error(request, f"Not handed over. {exc.detail}")
            return to_page(request, approval_id)
        except InvalidInput as exc:
            problem = exc
        else:
            messages.success(request, f"Handed to {to}. It is on their list.")
            return to_page(request, approval_id)
    elif approval.denial is not None or approval.status != "pending":
        return to_page(request, approval_id)
    people, away = teamwork.list_receivers(approval.id, actor)
    context = {
        "people": people,
        "away_now": away,
        "to": request.POST.get("to", ""),
        "note": read_text(request.POST, "note"),
        "max_note": teamwork.MAX_NOTE,
    }
    return _show_form(request, "hand_over", approval, problem, **context)


@users.action
def extend(request: HttpRequest, approval_id: UUID) -> HttpResponse:
    """Extend the deadline, or show the form again with its texts and the error."""
    actor, zone = principals.make_actor(request.user), timezone.get_current_timezone()
    approval = approval_views.read_approval(approval_id, actor=actor)
    form = ExtensionForm(approval, request.POST)
    try:
        extend_deadline(approval_id=approval_id, **form.read(), actor=actor, zone=zone)
        messages.success(request, "Extended.")
    except (AlreadyClosed, RunEnded, TamperedWith) as exc:
        messages.error(request, f"Not extended. {exc.detail}")
    except InvalidInput as exc:
        return _show_form(request, "extend", approval, exc, extension=form.refuse(exc))
    return to_page(request, approval_id)


@users.action
def show_presence(request: HttpRequest, approval_id: UUID) -> HttpResponse:
    """Record that the reader has the page open, and answer with what the page says of other people."""
    approval = teamwork.record_presence(
        approval_id=approval_id, actor=principals.make_actor(request.user)
    )
    values = {
        "approval": approval,
        "status": approval.status,
        "list_query": places.read_position(request).query,
        **build_teamwork_context(request, approval),
    }
    return render(request, "approvals/_here.html", values)


FIELD = "question"


def build_inquiries_context(
    approval: approval_views.ApprovalView, shared: Mapping[str, Any]
) -> dict[str, Any]:
    """Build the context: the inquiries about the call, oldest first, and whether this reader may ask another one.

    `shared` is the context of the page so far.
    """
    inquiries = list_inquiries(
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


@users.action
def ask(request: HttpRequest, approval_id: UUID) -> HttpResponse:
    """Ask the agent, or show the form again with its text and the error."""
    actor, text = principals.make_actor(request.user), read_text(request.POST, FIELD)
    try:
        inquire(approval_id=approval_id, question=text, actor=actor)
    except InvalidInput as exc:
        approval = approval_views.read_approval(approval_id, actor=actor)
        return _show_form(request, "ask", approval, exc, text=text, max_inquiry=MAX_INQUIRY)
    except (AlreadyClosed, RunEnded, TamperedWith, TooManyInquiries) as exc:
        messages.error(request, f"Not asked. {exc.detail}")
    else:
        messages.success(request, "Asked. The answer appears in this request, which stays open.")
    return to_page(request, approval_id)


@users.action
def write(request: HttpRequest, approval_id: UUID) -> HttpResponse:
    """Send the message, or show the form again with its text and the error."""
    actor, text = principals.make_actor(request.user), read_text(request.POST, "text")
    try:
        send(approval_id=approval_id, text=text, actor=actor)
    except (InvalidInput, TooManyUndelivered) as exc:
        problem = f"the text {exc.detail}." if isinstance(exc, InvalidInput) else exc.detail
        approval = approval_views.read_approval(approval_id, actor=actor)
        context = {"text": text, "problem": problem, "max_message": MAX_MESSAGE}
        return _show_form(request, "write", approval, exc, **context)
    except (AlreadyClosed, RunEnded, TamperedWith) as exc:
        messages.error(request, f"Not sent. {exc.detail}")
    else:
        messages.success(request, "Sent. You may still decide this request.")
    return to_page(request, approval_id)


def _show_form(
    request: HttpRequest,
    name: str,
    approval: approval_views.ApprovalView,
    refusal: RequestError | None,
    **context: Any,
) -> HttpResponse:
    """Show the page of one form of a request, with the typed values and the reason of the refusal."""
    shared = {
        "section": "inbox",
        "approval": approval,
        "list_query": places.read_position(request).query,
        "max_comment": teamwork.MAX_COMMENT,
        "status": approval.status,
        "problem": refusal,
    }
    status = 200 if refusal is None else refusal.status
    return render(request, f"approvals/{name}.html", shared | context, status=status)

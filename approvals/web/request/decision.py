"""Handles the form of a verdict: records the decision, then shows the page for its result."""

from math import ceil
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse

from approvals import clock
from approvals.decisions import checks
from approvals.decisions.decide import decide as record_decision
from approvals.decisions.decide import resolve
from approvals.decisions.decide import undo as undo_decision
from approvals.errors import (
    AlreadyClosed,
    AlreadyVoted,
    DigestMismatch,
    NotDecided,
    NotShown,
    TamperedWith,
    TooEarly,
    TooLate,
)
from approvals.reads import approval_views, inbox
from approvals.requests.argument_changes import describe, list_changes
from approvals.rights import principals
from approvals.web import list_position as places
from approvals.web.components import call_status, decision_form
from approvals.web.request import edit
from approvals.web.request.approval import read_answer, show
from approvals.web.request.request_page import answer_already_closed, to_page
from runtime.core.values.enums import GateKind, Verdict
from runtime.core.values.verdicts import GATES, VERDICTS, select_verdict_rule
from runtime.errors import Forbidden, InvalidInput
from runtime.ports.access import Actor
from runtime.web.display import plain_visible
from runtime.web.requests import read_actor, read_reason, read_text, users

MAX_SENTENCE = 100  # characters of a sentence in a message


@users.action
def decide(request: HttpRequest, approval_id: UUID, verdict: Verdict) -> HttpResponse:
    """Record the verdict, then show the next approval of the inbox, or this one if there is no other."""
    # The kind alone, without a look at the rights: `decide` checks them, and records who had none.
    kind = checks.read_kind(approval_id)
    if kind in GATES and kind not in VERDICTS[verdict].gates:
        raise Http404
    actor = read_actor(request)
    try:
        decided = _record_decision(request, approval_id, verdict, actor)
    except AlreadyClosed as exc:
        return answer_already_closed(
            request, approval_views.read_approval(approval_id, actor=actor), verdict, exc
        )
    except (  # what the reviewer can correct or must read
        Forbidden,
        TamperedWith,
        DigestMismatch,
        NotShown,
        TooEarly,
        AlreadyVoted,
        InvalidInput,
    ) as exc:
        return show(request, approval_views.read_approval(approval_id, actor=actor), exc, verdict)
    decision_form.record_reading(request, decided, actor)
    position = places.read_position(request)
    if position == places.ListPosition():
        following = inbox.find_next_request(decided)
    else:
        neighbours = places.find_neighbours(position, decided.reader, decided)
        following = neighbours.after or neighbours.before
    messages.success(request, *_write_toast(decided, verdict, linked=bool(following)))
    return to_page(request, following or approval_id)


def _record_decision(
    request: HttpRequest, approval_id: UUID, verdict: Verdict, actor: Actor
) -> approval_views.ApprovalView:
    """Read the form, and record the decision."""
    form: dict[str, Any] = {
        "reason": read_reason(request) or read_text(request.POST, "comment"),  # of an answer
        # as the reviewer typed the name, or that of the button
        "confirm": read_text(request.POST, decision_form.TAPPED)
        or read_text(request.POST, decision_form.TYPED),
        "actor": actor,
    }
    match VERDICTS[verdict].carries:
        case "edit":
            form |= {
                "arguments": edit.read_arguments(request),
                "preview": request.POST.get("preview"),
            }
        case "grant":
            form["grant"] = checks.read_grant(request.POST) or None
        case "result":
            approval = approval_views.read_approval(approval_id, actor=actor)
            form["result"] = (
                read_answer(request, approval, actor)
                if approval.is_question
                else decision_form.read_result(request, approval)
            )
    if VERDICTS[verdict].resolves_doubt:
        approval = approval_views.read_approval(approval_id, actor=actor)
        return resolve(run=approval.run, gate=approval.gate, outcome=verdict, **form)
    digest = request.POST.get("digest")
    return record_decision(approval_id=approval_id, verdict=verdict, digest=digest, **form)


def _write_toast(
    approval: approval_views.ApprovalView, verdict: Verdict, *, linked: bool
) -> tuple[str, str]:
    """Return the text of the message, and its tags: what the template `_toast.html` reads, separated by spaces.

    First the approval to view and to undo, `-` on its own page, which has both; then, if the decision can be undone,
    for how many seconds, and when it takes effect unless something must be resumed first.
    """
    title, effect = select_verdict_rule(GateKind(approval.kind), verdict).toast
    if approval.is_pending:  # the policy demands more people
        title = f"Your approval is recorded ({len(approval.voted)} of {approval.quorum})"
        effect = "Other people must approve too."
    if linked:
        sentence = approval.sentence
        call = sentence if len(sentence) <= MAX_SENTENCE else f"{sentence[:MAX_SENTENCE]}…"
        if isinstance(approval.edited, dict):  # the sentence names the proposed values
            call += f", with {describe(list_changes(approval.args, approval.edited))}"
        title = f"{title}: {plain_visible(call)}"
    delay = call_status.read_delay(approval)
    text = call_status.describe_outcome(approval, delay, title, effect)
    tags = str(approval.id) if linked else "-"
    if approval.effective_at is not None:
        seconds = ceil((approval.effective_at - clock.read_time()).total_seconds())
        if seconds > 0:
            tags += f" {seconds} {delay.counts_at.isoformat() if delay.counts_at else ''}"
    return text, tags


@users.action
def undo(request: HttpRequest, approval_id: UUID) -> HttpResponse:
    """Undo the decision: the request is open again, and the run has not received the decision."""
    try:
        undo_decision(approval_id=approval_id, actor=principals.make_actor(request.user))
    except (AlreadyClosed, NotDecided, TooLate) as exc:
        messages.error(request, f"Nothing was changed. {exc.detail}")
    else:
        messages.success(request, "Undone. Waiting for a decision again.")
    return to_page(request, approval_id)

"""Handles the forms of decisions: records the decision, then shows the page for its result."""

from collections.abc import Callable
from math import ceil
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse

from approvals import clock
from approvals.errors import (
    AlreadyCancelled,
    AlreadyDecided,
    AlreadyVoted,
    DigestMismatch,
    Expired,
    NotShown,
    TamperedWith,
    TooEarly,
)
from approvals.queries import important, inbox, requests
from approvals.requests.argument_changes import changes, describe
from approvals.rights import principals
from approvals.web import place as places
from approvals.web.parts import call_status, reading
from approvals.web.request.request_page import already_closed, to_page
from runtime.core.values.enums import GateKind, Risk, Verdict
from runtime.core.values.verdicts import words_at
from runtime.errors import Forbidden, InvalidInput
from runtime.ports.access import Actor
from runtime.web.display import plain_visible

MAX_SENTENCE = 100  # characters of a sentence in a message

# Errors that the reviewer can correct or must read.
Problem = (
    Forbidden | TamperedWith | DigestMismatch | NotShown | TooEarly | AlreadyVoted | InvalidInput
)


def handle_decision(
    request: HttpRequest,
    approval: UUID,
    verdict: Verdict,
    *,
    act: Callable[[Actor], requests.ApprovalView],
    page: Callable[[HttpRequest, requests.ApprovalView, Actor, Problem], HttpResponse],
) -> HttpResponse:
    """Handle a decision, then show the next request of the inbox, or this one if there is no other.

    `act` records the decision and returns the request, `page` shows the form again with the problem.
    """
    actor = principals.actor_of(request.user)
    try:
        decided = act(actor)
    except (AlreadyDecided, AlreadyCancelled, Expired) as exc:
        return already_closed(request, requests.approval(approval, actor=actor), verdict, exc)
    except (
        Forbidden,
        TamperedWith,
        DigestMismatch,
        NotShown,
        TooEarly,
        AlreadyVoted,
        InvalidInput,
    ) as exc:
        return page(request, requests.approval(approval, actor=actor), actor, exc)
    reading.record(request, decided, actor)
    following = _following(request, decided, actor)
    title, effect = words_at(GateKind(decided.kind), verdict).toast
    if decided.status == "pending":  # the policy demands more people
        title = f"Your approval is recorded ({len(decided.voted)} of {decided.quorum})"
        effect = "Other people must approve too."
    if following:
        title = f"{title}: {_describe(decided)}"
    delay = call_status.delay_of(decided)
    messages.success(
        request,
        call_status.outcome_text(decided, delay, title, effect),
        extra_tags=_links(decided, delay, linked=bool(following)),
    )
    return to_page(request, following or approval)


def _following(request: HttpRequest, approval: requests.ApprovalView, actor: Actor) -> UUID | None:
    """Return the request to show next: the one after this in its place of the inbox, else the one before.

    After a call that the inbox lists first, it is the next of those, else the first of the others.
    """
    principal = principals.principal_of(actor)
    place = places.read(request)
    if place == places.ListPosition() and approval.risk == Risk.HIGH:
        first = important.before_all(principal, approval)
        if approval.id in first:
            others = [one for one in first if one != approval.id]
            rest = () if others else inbox.page(principal, view=place.view).items
            return next(iter((*others, *(one.id for one in rest))), None)
    before, after = places.previous_and_next(place, principal, approval)
    return after or before


def _describe(approval: requests.ApprovalView) -> str:
    """Return the sentence, cut to a line, and what a person changed: the sentence names the proposed values."""
    sentence = approval.sentence
    text = sentence if len(sentence) <= MAX_SENTENCE else f"{sentence[:MAX_SENTENCE]}…"
    if isinstance(approval.edited, dict):
        text += f", with {describe(changes(approval.args, approval.edited))}"
    return plain_visible(text)


def _links(approval: requests.ApprovalView, delay: call_status.Delay, *, linked: bool) -> str:
    """Return what the template `_toast.html` reads beside the text of the message, separated by spaces.

    First the request to view and to undo, `-` on its own page, which has both; then, if the decision can be undone, for
    how many seconds, and when it takes effect unless something must be resumed first.
    """
    place = str(approval.id) if linked else "-"
    left = (
        ceil((approval.effective_at - clock.now()).total_seconds()) if approval.effective_at else 0
    )
    if left <= 0:
        return place
    return f"{place} {left} {delay.counts_at.isoformat() if delay.counts_at else ''}"

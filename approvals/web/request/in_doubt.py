"""The page of a call in doubt: the call, and the three ways to resolve it."""

from functools import partial
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_POST

from approvals import clock
from approvals.decisions import in_doubt
from approvals.queries import requests
from approvals.requests import results
from approvals.rights import principals
from approvals.web.parts import result_field, second_step
from approvals.web.request.decision_form import Problem, handle_decision
from approvals.web.request.request_page import answer, page_context
from runtime.core.values.enums import Verdict
from runtime.ports.access import Actor
from runtime.reads import outcomes
from runtime.web.requests import form_text


@require_POST
@login_required
def happened(request: HttpRequest, approval: UUID) -> HttpResponse:
    """Record that the call happened, with its result."""
    return _settle(request, approval, Verdict.HAPPENED)


@require_POST
@login_required
def run_again(request: HttpRequest, approval: UUID) -> HttpResponse:
    """Let the call run again."""
    return _settle(request, approval, Verdict.RUN_AGAIN)


@require_POST
@login_required
def give_up(request: HttpRequest, approval: UUID) -> HttpResponse:
    """Give the call up."""
    return _settle(request, approval, Verdict.GIVE_UP)


def page(
    request: HttpRequest,
    approval: requests.ApprovalView,
    actor: Actor,
    problem: Problem | None = None,
    *,
    outcome: Verdict | None = None,
) -> HttpResponse:
    """Show the page; `outcome` is the form just sent, `problem` its error."""
    opened = second_step.is_opened_by(request, problem)
    principal = principals.principal_of(actor)
    seen = page_context(request, approval, principal, None if opened else problem)
    context = {
        **seen,
        "late": outcomes.late_outcomes_of_call(
            approval.run, seen["transcript"], frame=approval.frame, call=approval.call
        ),
        "ready": approval.not_before is None or approval.not_before <= clock.now(),
        **result_field.context(request, approval, problem),
        **second_step.context(request, approval, problem),
        "outcome": outcome,
        "reason": form_text(request.POST, "reason"),
    }
    return answer(request, "approvals/in_doubt.html", context)


def _settle(request: HttpRequest, approval: UUID, outcome: Verdict) -> HttpResponse:
    shown = requests.approval(approval, actor=principals.actor_of(request.user))
    happened = outcome is Verdict.HAPPENED
    return handle_decision(
        request,
        approval,
        outcome,
        act=lambda actor: in_doubt.resolve(
            run=shown.run,
            gate=shown.gate,
            outcome=outcome,
            result=result_field.read(request, shown) if happened else results.ABSENT,
            reason=form_text(request.POST, "reason"),
            actor=actor,
            confirm=second_step.given(request),
        ),
        page=partial(page, outcome=outcome),
    )

"""The page of one approval: the call, its context, and the two decisions."""

from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_POST, require_safe

from approvals.decisions import decide
from approvals.errors import DigestMismatch
from approvals.queries import requests
from approvals.queries.past_calls import usual
from approvals.queries.past_calls.comparison import compare
from approvals.queries.past_calls.similar import similar
from approvals.requests import results
from approvals.rights import principals
from approvals.rights.principals import Principal
from approvals.web.parts import denial, preview, result_field, second_step
from approvals.web.request import edit, frame_gate, in_doubt, inquiries, question, revisions
from approvals.web.request.decision_form import Problem, handle_decision
from approvals.web.request.request_page import answer, page_context
from runtime.core.run.continuation import MAX_DENIALS
from runtime.core.values.enums import GateKind, Verdict
from runtime.core.values.verdicts import FRAME_GATES
from runtime.keyring import sealing
from runtime.ports.access import Actor
from runtime.reads import time_limits
from runtime.web.requests import form_text


@require_safe
@login_required
def approval(request: HttpRequest, approval: UUID) -> HttpResponse:
    """Show a request of any kind."""
    actor = principals.actor_of(request.user)
    principal = principals.principal_of(actor)
    shown = requests.approval_for(approval, principal)
    if shown.kind == GateKind.IN_DOUBT:
        return in_doubt.page(request, shown, actor)
    if shown.kind in FRAME_GATES:
        return frame_gate.page(request, shown, actor)
    if shown.kind == GateKind.QUESTION:
        return question.page(request, shown, actor)
    return _show(request, shown, principal)


@require_POST
@login_required
def approve(request: HttpRequest, approval: UUID) -> HttpResponse:
    """Approve the call."""
    return _decide(request, approval, Verdict.APPROVE)


@require_POST
@login_required
def deny(request: HttpRequest, approval: UUID) -> HttpResponse:
    """Deny the call."""
    return _decide(request, approval, Verdict.DENY)


@require_POST
@login_required
def request_changes(request: HttpRequest, approval: UUID) -> HttpResponse:
    """Deny the call, and have the agent propose it again with changes."""
    return _decide(request, approval, Verdict.REQUEST_CHANGES)


@require_POST
@login_required
def answer_instead(request: HttpRequest, approval: UUID) -> HttpResponse:
    """Give the agent a result, and do not make the call; or answer its question."""
    shown = requests.approval(approval, actor=principals.actor_of(request.user))
    if shown.kind == GateKind.QUESTION:
        return question.answer(request, shown)
    return _decide(request, approval, Verdict.ANSWER, shown)


def _decide(
    request: HttpRequest,
    approval: UUID,
    verdict: Verdict,
    shown: requests.ApprovalView | None = None,
) -> HttpResponse:
    """Handle a decision. That it may be made is checked with it; an answer needs the request that was `shown`."""
    kind = shown.kind if shown else requests.kind_of(approval)
    if kind in FRAME_GATES:
        raise Http404
    is_question = kind == GateKind.QUESTION
    return handle_decision(
        request,
        approval,
        verdict,
        act=lambda actor: decide.decide(
            approval_id=approval,
            verdict=verdict,
            digest=request.POST.get("digest"),
            reason=denial.reason(request),
            actor=actor,
            result=result_field.read(request, shown) if shown else results.ABSENT,
            confirm=second_step.given(request),
        ),
        page=question.page if is_question else _page,
    )


def _is_sealed(args: Any) -> bool:
    """Tell whether these arguments are secrets, or hold one: each proposal is sealed anew, so it is another action."""
    return sealing.REDACTED in (args.values() if isinstance(args, dict) else [args])


def _page(
    request: HttpRequest,
    approval: requests.ApprovalView,
    actor: Actor,
    problem: Problem,
) -> HttpResponse:
    return _show(request, approval, principals.principal_of(actor), problem)


def _show(
    request: HttpRequest,
    approval: requests.ApprovalView,
    principal: Principal | None,
    problem: Problem | None = None,
) -> HttpResponse:
    opened = second_step.is_opened_by(request, problem)
    seen = page_context(request, approval, principal, None if opened else problem)
    beside = requests.beside(approval, principal)
    denied, together = denial.turns(approval, beside, seen["transcript"]), beside.turn
    listed = {other.call for other in together}
    ends_run = denial.ends_run(approval, denied, seen)
    context = {
        **seen,
        **_similar(approval, principal),
        **denial.context(approval, ends_run=ends_run),
        "denials": len(denied),
        "ends_run": ends_run,
        "together": together,
        "preview": preview.card(approval.edited_preview or approval.preview),
        "computed": "for these changes" if approval.edited_preview else "",
        "others": [
            step
            for step in seen["others"]
            if step.call.frame != approval.frame or step.call.id not in listed
        ],
        "stale": isinstance(problem, DigestMismatch),
        "refused_approval": problem is not None and request.path.endswith("/approve/"),
        "max_denials": MAX_DENIALS,
        "comes_again": approval.holds or _is_sealed(approval.args),
        "reason": form_text(request.POST, "reason"),
        **inquiries.context(approval, seen),
        **revisions.context(approval, principal, problem, request),
        **edit.context(approval, seen["call"], seen["transcript"]),
        **result_field.context(request, approval, problem),
        **second_step.context(request, approval, problem),
    }
    return answer(request, "approvals/approval.html", context)


def _similar(approval: requests.ApprovalView, principal: Principal | None) -> dict[str, Any]:
    """Find the odd values of the call, and compare it with earlier ones, unless the page has taken too long."""
    if time_limits.is_used_up():
        return {"similar": None, "similar_left_out": True, "oddities": {}}
    past = usual.histories([approval.tool], principal, before=approval.decided_at)[approval.tool]
    oddities = usual.of_request(approval, past)
    last = similar(approval, principal, until=time_limits.soft_end())
    return {
        "similar": last and compare(last, past, oddities),
        "oddities": usual.by_argument(oddities),
    }

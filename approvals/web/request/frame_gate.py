"""The page of a frame gate: why an agent stopped, and the buttons to continue or stop."""

from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_POST

from approvals.decisions import budget_grants, decide
from approvals.errors import DigestMismatch
from approvals.queries import requests
from approvals.rights import principals
from approvals.web.request.decision_form import Problem, handle_decision
from approvals.web.request.request_page import answer, page_context
from runtime.core.run.events import AgentChange
from runtime.core.values.enums import GateKind, Verdict
from runtime.core.values.verdicts import FRAME_GATES
from runtime.errors import InvalidInput
from runtime.ports.access import Actor
from runtime.reads.version_diff import VersionDifference, differences
from runtime.web.requests import form_text


@require_POST
@login_required
def resume(request: HttpRequest, approval: UUID) -> HttpResponse:
    """Let the frame continue."""
    return _decide(request, approval, Verdict.CONTINUE)


@require_POST
@login_required
def stop(request: HttpRequest, approval: UUID) -> HttpResponse:
    """Stop the run."""
    return _decide(request, approval, Verdict.STOP)


def page(
    request: HttpRequest,
    approval: requests.ApprovalView,
    actor: Actor,
    problem: Problem | None = None,
) -> HttpResponse:
    """Show the page; `problem` is the error of the form just sent."""
    context = {
        **page_context(request, approval, principals.principal_of(actor), problem),
        "stale": isinstance(problem, DigestMismatch),
        "reason": form_text(request.POST, "reason"),
        "differences": _differences(approval),
        "reached": budget_grants.reached(approval),
        "grants": budget_grants.fields(approval, request.POST),
        "grant_problem": budget_grants.problem(problem)
        if isinstance(problem, InvalidInput)
        else "",
    }
    return answer(request, "approvals/frame_gate.html", context)


def _differences(approval: requests.ApprovalView) -> tuple[VersionDifference, ...]:
    """Return the agent's changes at a version gate; none if the stored changes cannot be read."""
    if approval.kind != GateKind.VERSION:
        return ()
    try:
        return differences(AgentChange(**change) for change in approval.args["changes"])
    except (KeyError, TypeError):
        return ()


def _decide(request: HttpRequest, approval: UUID, verdict: Verdict) -> HttpResponse:
    if requests.approval(approval, actor=principals.actor_of(request.user)).kind not in FRAME_GATES:
        raise Http404
    return handle_decision(
        request,
        approval,
        verdict,
        act=lambda actor: decide.decide(
            approval_id=approval,
            verdict=verdict,
            digest=request.POST.get("digest"),
            reason=form_text(request.POST, "reason"),
            actor=actor,
            grant=budget_grants.read(request.POST) or None if verdict is Verdict.CONTINUE else None,
        ),
        page=page,
    )

"""The page of a frame gate: why an agent stopped, and the buttons to continue or stop."""

from django.http import HttpRequest, HttpResponse

from approvals.decisions import budget_grants
from approvals.errors import DigestMismatch
from approvals.reads import approval_views
from approvals.web.request.request_page import answer, page_context
from runtime.core.run.events import AgentChange
from runtime.core.values.enums import GateKind, Verdict
from runtime.errors import InvalidInput, RequestError
from runtime.reads.version_diff import VersionDifference, differences
from runtime.web.requests import form_text


def page(
    request: HttpRequest,
    approval: approval_views.ApprovalView,
    problem: RequestError | None,
    _: Verdict | None,
) -> HttpResponse:
    """Show the page; `problem` is the error of the form just sent."""
    context = {
        **page_context(request, approval, problem),
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


def _differences(approval: approval_views.ApprovalView) -> tuple[VersionDifference, ...]:
    """Return the agent's changes at a version gate; none if the stored changes cannot be read."""
    if approval.kind != GateKind.VERSION:
        return ()
    try:
        return differences(AgentChange(**change) for change in approval.args["changes"])
    except (KeyError, TypeError):
        return ()

"""The page of one approval: the call, its context, and the decisions; the pages of a frame gate and a call in doubt."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from approvals import clock
from approvals.decisions import checks
from approvals.errors import DigestMismatch
from approvals.reads import approval_views, related_requests, usual
from approvals.reads.approval_views import ApprovalView
from approvals.reads.similar import compare, similar
from approvals.requests.argument_changes import ArgumentChange, changes
from approvals.rights import principals
from approvals.rules.argument_values import MIN_HISTORY, PastValues
from approvals.web.components import decision_form, preview
from approvals.web.request import edit, question, teamwork
from approvals.web.request.request_page import answer, page_context
from runtime.core.run.continuation import MAX_DENIALS, MAX_REVISIONS
from runtime.core.run.events import AgentChange
from runtime.core.values.enums import GateKind, Verdict
from runtime.core.values.verdicts import FRAME_GATES
from runtime.errors import InvalidInput, RequestError
from runtime.keyring import sealing
from runtime.reads import outcomes, time_limits
from runtime.reads.version_diff import VersionDifference, differences
from runtime.web.requests import form_text


@require_safe
@login_required
def approval(request: HttpRequest, approval_id: UUID) -> HttpResponse:
    """Show an approval of any kind."""
    return show(
        request, approval_views.approval(approval_id, actor=principals.actor_of(request.user))
    )


def show(
    request: HttpRequest,
    approval: approval_views.ApprovalView,
    problem: RequestError | None = None,
    verdict: Verdict | None = None,
) -> HttpResponse:
    """Show the page of an approval. `verdict` is that of the form just sent, and `problem` its error."""
    if problem and verdict is Verdict.EDIT:
        return edit.show_again(request, approval, problem)
    page = _PAGES.get(approval.kind, _page)
    return page(request, approval, problem, verdict)


def _page(
    request: HttpRequest,
    approval: approval_views.ApprovalView,
    problem: RequestError | None,
    verdict: Verdict | None,
) -> HttpResponse:
    is_first_step = decision_form.is_opened_by(request, problem)
    shared = page_context(request, approval, None if is_first_step else problem)
    other_approvals = related_requests.read_others(approval)
    denied = decision_form.read_denied_turns(approval, other_approvals, shared["transcript"])
    args = approval.args.values() if isinstance(approval.args, dict) else [approval.args]
    same_turn = other_approvals.turn
    listed = {other.call for other in same_turn}
    ends_run = decision_form.ends_run(approval, denied, shared)
    context = {
        **shared,
        **_similar(approval, shared["past"]),
        **decision_form.denial_context(approval, ends_run=ends_run),
        "denials": len(denied),
        "ends_run": ends_run,
        "together": same_turn,
        "preview": preview.card(approval.edited_preview or approval.preview),
        "computed": "for these changes" if approval.edited_preview else "",
        "open_calls": [
            step
            for step in shared["open_calls"]
            if step.call.frame != approval.frame or step.call.id not in listed
        ],
        "stale": isinstance(problem, DigestMismatch),
        "refused_approval": problem is not None and verdict is Verdict.APPROVE,
        "max_denials": MAX_DENIALS,
        # Each proposal of a secret is sealed anew, so it is another action.
        "comes_again": approval.holds or sealing.REDACTED in args,
        "reason": form_text(request.POST, "reason"),
        **teamwork.inquiries_context(approval, shared),
        "wrong_changes": problem is not None and verdict is Verdict.REQUEST_CHANGES,
        **revisions_context(approval),
        **edit.context(approval, shared["call"], shared["transcript"]),
        **decision_form.result_context(request, approval, problem),
        **decision_form.second_step_context(request, approval, problem),
    }
    return answer(request, "approvals/approval.html", context)


def _similar(approval: ApprovalView, past: PastValues | None) -> dict[str, Any]:
    """Find the odd values of the call, and compare it with earlier ones, unless the page has taken too long."""
    if time_limits.is_used_up():
        return {"similar": None, "similar_left_out": True, "odd": ()}
    past = past or usual.history_before(approval)
    oddities = usual.of_request(approval, past)
    last = similar(approval, until=time_limits.soft_end())
    return {
        "similar": last and compare(last, past, oddities),
        "odd": oddities,
        "past": past,
        "needed": MIN_HISTORY,
    }


def _frame_gate_page(
    request: HttpRequest,
    approval: approval_views.ApprovalView,
    problem: RequestError | None,
    _: Verdict | None,
) -> HttpResponse:
    """Show why an agent stopped, with the buttons to continue or stop; `problem` is the error of the form just sent."""
    changed: tuple[VersionDifference, ...] = ()
    if approval.kind == GateKind.VERSION:
        with suppress(KeyError, TypeError):  # the stored changes cannot be read
            changed = differences(AgentChange(**change) for change in approval.args["changes"])
    context = {
        **page_context(request, approval, problem),
        "stale": isinstance(problem, DigestMismatch),
        "reason": form_text(request.POST, "reason"),
        "differences": changed,
        "reached": checks.read_reached_limits(approval),
        "grants": checks.list_grant_fields(approval, request.POST),
        "grant_problem": checks.explain_grant(problem) if isinstance(problem, InvalidInput) else "",
    }
    return answer(request, "approvals/frame_gate.html", context)


def _in_doubt_page(
    request: HttpRequest,
    approval: approval_views.ApprovalView,
    problem: RequestError | None,
    verdict: Verdict | None,
) -> HttpResponse:
    """Show the page of a call in doubt; `verdict` is that of the form just sent, `problem` its error."""
    is_first_step = decision_form.is_opened_by(request, problem)
    shared = page_context(request, approval, None if is_first_step else problem)
    context = {
        **shared,
        "late": outcomes.late_outcomes_of_call(
            approval.run, shared["transcript"], frame=approval.frame, call=approval.call
        ),
        "ready": approval.not_before is None or approval.not_before <= clock.now(),
        **decision_form.result_context(request, approval, problem),
        **decision_form.second_step_context(request, approval, problem),
        "outcome": verdict,
        "reason": form_text(request.POST, "reason"),
    }
    if time_limits.is_used_up():
        context["similar_left_out"] = True
    else:
        past = usual.history_before(approval)
        context["odd"] = usual.of_request(approval, past)
        # Few approvals of its tool say nothing: it may have needed none.
        context["past"] = past if past.is_enough else None
    return answer(request, "approvals/in_doubt.html", context)


_PAGES: Mapping[str, Callable[..., HttpResponse]] = {
    **dict.fromkeys(FRAME_GATES, _frame_gate_page),
    GateKind.QUESTION: question.page,
    GateKind.IN_DOUBT: _in_doubt_page,
}


def revisions_context(approval: ApprovalView) -> dict[str, Any]:
    """Build the context: the revisions before and after this one."""
    earlier = related_requests.read_previous_revision(approval)
    revised = list[ArgumentChange]()
    if (
        earlier is not None
        and not (earlier.removed_at or approval.removed_at)
        and isinstance(earlier.args, dict)
        and isinstance(approval.args, dict)
    ):
        revised = changes(earlier.args, approval.args)
    return {
        "earlier": earlier,
        "revised": revised,
        "later": related_requests.read_next_revision(approval),
        "is_last_revision": approval.revision >= MAX_REVISIONS,
    }

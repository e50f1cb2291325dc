"""The page of a call in doubt: the call, and the three ways to resolve it."""

from django.http import HttpRequest, HttpResponse

from approvals import clock
from approvals.reads import approval_views
from approvals.web.components import result_field, second_step
from approvals.web.request.request_page import answer, page_context
from runtime.core.values.enums import Verdict
from runtime.errors import RequestError
from runtime.reads import outcomes
from runtime.web.requests import form_text


def page(
    request: HttpRequest,
    approval: approval_views.ApprovalView,
    problem: RequestError | None,
    verdict: Verdict | None,
) -> HttpResponse:
    """Show the page; `verdict` is that of the form just sent, `problem` its error."""
    is_first_step = second_step.is_opened_by(request, problem)
    shared = page_context(request, approval, None if is_first_step else problem)
    context = {
        **shared,
        "late": outcomes.late_outcomes_of_call(
            approval.run, shared["transcript"], frame=approval.frame, call=approval.call
        ),
        "ready": approval.not_before is None or approval.not_before <= clock.now(),
        **result_field.context(request, approval, problem),
        **second_step.context(request, approval, problem),
        "outcome": verdict,
        "reason": form_text(request.POST, "reason"),
    }
    return answer(request, "approvals/in_doubt.html", context)

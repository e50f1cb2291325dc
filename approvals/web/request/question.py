"""The page of a question that an agent asks: the question, and the form of its answer."""

from typing import Any

from django.http import HttpRequest, HttpResponse

from approvals.decisions import decide
from approvals.errors import DigestMismatch
from approvals.reads import approval_views
from approvals.web.components import answer_form, denial
from approvals.web.request.request_page import answer, page_context
from runtime.core.values.enums import Verdict
from runtime.errors import InvalidInput, RequestError
from runtime.ports.access import Actor
from runtime.web.requests import form_text


def page(
    request: HttpRequest,
    approval: approval_views.ApprovalView,
    problem: RequestError | None,
    _: Verdict | None,
) -> HttpResponse:
    """Show the page; `problem` is the error of the form just sent."""
    shared = page_context(request, approval, problem)
    denied = denial.turns(approval, approval_views.read_others(approval), shared["transcript"])
    ends_run = denial.ends_run(approval, denied, shared)
    wrong = _wrong_fields(request, approval, problem)
    fields, other = answer_form.fill_in(approval.result_schema, request.POST, wrong or {})
    context = {
        **shared,
        **denial.context(approval, ends_run=ends_run),
        "question": _question(approval),
        "ends_run": ends_run,
        "fields": fields,
        "other": other,
        "wrong": wrong,
        "wrong_result": wrong is not None,
        "stale": isinstance(problem, DigestMismatch),
        "reason": form_text(request.POST, "reason"),
    }
    return answer(request, "approvals/question.html", context)


def read_answer(request: HttpRequest, approval: approval_views.ApprovalView, actor: Actor) -> Any:
    """Read the answer of the form. Only a person who may decide learns about wrong fields."""
    value, wrong = answer_form.read(approval.result_schema, request.POST)
    if wrong:
        digest = request.POST.get("digest")
        decide.require_open(approval_id=approval.id, digest=digest, actor=actor)
        raise InvalidInput("result", "does not fit")
    return value


def _wrong_fields(
    request: HttpRequest, approval: approval_views.ApprovalView, problem: RequestError | None
) -> dict[str, str] | None:
    """Return the problem of each field; None if the answer is not the problem."""
    if not isinstance(problem, InvalidInput) or not problem.field.startswith("result"):
        return None
    _, wrong = answer_form.read(approval.result_schema, request.POST)
    return wrong or answer_form.problem(approval.result_schema, problem)


def _question(approval: approval_views.ApprovalView) -> Any:
    """Return the text of the agent; all arguments of a call that has no such text."""
    args = approval.args
    return args["question"] if isinstance(args, dict) and set(args) == {"question"} else args

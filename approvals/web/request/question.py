"""The page of a question that an agent asks: the question, and the form of its answer."""

from typing import Any

from django.http import HttpRequest, HttpResponse

from approvals.decisions import decide
from approvals.errors import DigestMismatch
from approvals.queries import requests
from approvals.rights import principals
from approvals.web.parts import answer_form, denial
from approvals.web.request.decision_form import Problem, handle_decision
from approvals.web.request.request_page import answer as rendered
from approvals.web.request.request_page import page_context
from runtime.core.values.enums import Verdict
from runtime.errors import InvalidInput
from runtime.ports.access import Actor
from runtime.web.requests import form_text


def page(
    request: HttpRequest,
    approval: requests.ApprovalView,
    actor: Actor,
    problem: Problem | None = None,
    wrong: dict[str, str] | None = None,
) -> HttpResponse:
    """Show the page; `problem` is the error of the form just sent, `wrong` has the problems of its fields."""
    seen = page_context(request, approval, principals.principal_of(actor), problem)
    denied = denial.turns(approval, requests.beside(approval, None), seen["transcript"])
    ends_run = denial.ends_run(approval, denied, seen)
    fields, other = answer_form.shown(approval.result_schema, request.POST, wrong or {})
    context = {
        **seen,
        **denial.context(approval, ends_run=ends_run),
        "question": _question(approval),
        "ends_run": ends_run,
        "fields": fields,
        "other": other,
        "wrong": wrong,
        "wrong_result": wrong is not None,
        "stale": isinstance(problem, DigestMismatch),
        "reason": form_text(request.POST, "reason"),
        "comment": form_text(request.POST, "comment"),
    }
    return rendered(request, "approvals/question.html", context)


def answer(request: HttpRequest, approval: requests.ApprovalView) -> HttpResponse:
    """Record the answer of the form; or show the form again, with everything that was typed."""
    value, wrong = answer_form.read(approval.result_schema, request.POST)

    def again(
        request: HttpRequest, approval: requests.ApprovalView, actor: Actor, problem: Problem
    ) -> HttpResponse:
        if not isinstance(problem, InvalidInput) or not problem.field.startswith("result"):
            return page(request, approval, actor, problem)
        found = wrong or answer_form.problem(approval.result_schema, problem)
        return page(request, approval, actor, problem, found)

    def act(actor: Actor) -> requests.ApprovalView:
        if wrong:  # only a person who may decide learns about fields
            decide.require_open(
                approval_id=approval.id, digest=request.POST.get("digest"), actor=actor
            )
            raise InvalidInput("result", "does not fit")
        return decide.decide(
            approval_id=approval.id,
            verdict=Verdict.ANSWER,
            digest=request.POST.get("digest"),
            reason=form_text(request.POST, "comment"),
            actor=actor,
            result=value,
        )

    return handle_decision(request, approval.id, Verdict.ANSWER, act=act, page=again)


def _question(approval: requests.ApprovalView) -> Any:
    """Return the text of the agent; all arguments of a call that has no such text."""
    args = approval.args
    return args["question"] if isinstance(args, dict) and set(args) == {"question"} else args

"""The page of one approval: the call, its context, and the decisions; of a frame gate, a call in doubt, a question."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final
from uuid import UUID

from django.http import HttpRequest, HttpResponse

from approvals import clock
from approvals.decisions import checks, decide
from approvals.reads import approval_views, related_requests, usual
from approvals.reads.approval_views import ApprovalView
from approvals.reads.similar import compare, find_similar
from approvals.requests.argument_changes import ArgumentChange, list_changes
from approvals.rights import principals
from approvals.rules.argument_values import MIN_HISTORY, PastValues
from approvals.web.components import decision_form, preview
from approvals.web.request import edit, teamwork
from approvals.web.request.request_page import build_page_context, render_request
from runtime.core.run.continuation import MAX_DENIALS, MAX_REVISIONS
from runtime.core.run.events import AgentChange
from runtime.core.values import json_schema
from runtime.core.values.enums import GateKind, Verdict
from runtime.core.values.verdicts import FRAME_GATES
from runtime.errors import InvalidInput, RequestError
from runtime.keyring import sealing
from runtime.ports.access import Actor
from runtime.reads import outcomes, time_limits
from runtime.reads.version_diff import VersionDifference, list_differences
from runtime.web import schema_form
from runtime.web.requests import users
from runtime.web.schema_form import Field

_ANSWER: Final = "answer"  # the one field of a question whose answer is no object
_RESULT: Final = "result"  # as `decide` names the value


@users.guard_page
def show_approval(request: HttpRequest, approval_id: UUID) -> HttpResponse:
    """Show an approval of any kind."""
    return show(
        request,
        approval_views.read_approval(approval_id, actor=principals.make_actor(request.user)),
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
    page = _PAGES.get(approval.kind, _show_call)
    return page(request, approval, problem, verdict)


def read_answer(request: HttpRequest, approval: approval_views.ApprovalView, actor: Actor) -> Any:
    """Read the answer of the form. Only a person who may decide learns about wrong fields."""
    value, wrong = _read_value(approval.result_schema, request.POST)
    if wrong:
        digest = request.POST.get("digest")
        decide.require_open(approval_id=approval.id, digest=digest, actor=actor)
        raise InvalidInput("result", "does not fit")
    return value


def build_revisions_context(approval: ApprovalView) -> dict[str, Any]:
    """Build the context: the revisions before and after this one."""
    earlier = related_requests.read_previous_revision(approval)
    revised = list[ArgumentChange]()
    if (
        earlier is not None
        and not (earlier.removed_at or approval.removed_at)
        and isinstance(earlier.args, dict)
        and isinstance(approval.args, dict)
    ):
        revised = list_changes(earlier.args, approval.args)
    return {
        "earlier": earlier,
        "revised": revised,
        "later": related_requests.read_next_revision(approval),
        "is_last_revision": approval.revision >= MAX_REVISIONS,
    }


def _show_call(
    request: HttpRequest,
    approval: approval_views.ApprovalView,
    problem: RequestError | None,
    verdict: Verdict | None,
) -> HttpResponse:
    is_first_step = decision_form.is_opened_by(request, problem)
    shared = build_page_context(request, approval, None if is_first_step else problem)
    other_approvals = related_requests.read_others(approval)
    denied = decision_form.read_denied_turns(approval, other_approvals, shared["transcript"])
    args = approval.args.values() if isinstance(approval.args, dict) else [approval.args]
    same_turn = other_approvals.turn
    listed = {other.call for other in same_turn}
    ends_run = decision_form.must_end_run(approval, denied, shared)
    context = {
        **shared,
        **_compare_with_past(approval, shared["past"]),
        **decision_form.build_denial_context(approval, ends_run=ends_run),
        "denials": len(denied),
        "ends_run": ends_run,
        "together": same_turn,
        "preview": preview.build_card(approval.edited_preview or approval.preview),
        "computed": "for these changes" if approval.edited_preview else "",
        "open_calls": [
            call
            for call in shared["open_calls"]
            if call.frame != approval.frame or call.id not in listed
        ],
        "refused_approval": problem is not None and verdict is Verdict.APPROVE,
        "max_denials": MAX_DENIALS,
        # Each proposal of a secret is sealed anew, so it is another action.
        "comes_again": approval.holds or sealing.REDACTED in args,
        **teamwork.build_inquiries_context(approval, shared),
        "wrong_changes": problem is not None and verdict is Verdict.REQUEST_CHANGES,
        **build_revisions_context(approval),
        **edit.build_edit_context(approval, shared["call"], shared["transcript"]),
        **decision_form.build_result_context(request, approval, problem),
        **decision_form.build_second_step_context(request, approval, problem),
    }
    return render_request(request, "approvals/approval.html", context)


def _compare_with_past(approval: ApprovalView, past: PastValues | None) -> dict[str, Any]:
    """Find the odd values of the call, and compare it with earlier ones, unless the page has taken too long."""
    if time_limits.is_used_up():
        return {"similar": None, "similar_left_out": True, "odd": ()}
    past = past or usual.read_history_before(approval)
    oddities = usual.find_unusual_in_request(approval, past)
    last = find_similar(approval, until=time_limits.compute_soft_end())
    return {
        "similar": last and compare(last, past, oddities),
        "odd": oddities,
        "past": past,
        "needed": MIN_HISTORY,
    }


def _show_frame_gate(
    request: HttpRequest,
    approval: approval_views.ApprovalView,
    problem: RequestError | None,
    _: Verdict | None,
) -> HttpResponse:
    """Show why an agent stopped, with the buttons to continue or stop; `problem` is the error of the form just sent."""
    changed: tuple[VersionDifference, ...] = ()
    if approval.kind == GateKind.VERSION:
        with suppress(KeyError, TypeError):  # the stored changes cannot be read
            changed = list_differences(AgentChange(**change) for change in approval.args["changes"])
    context = {
        **build_page_context(request, approval, problem),
        "differences": changed,
        "reached": checks.read_reached_limits(approval),
        "grants": checks.list_grant_fields(approval, request.POST),
        "grant_problem": checks.explain_grant(problem) if isinstance(problem, InvalidInput) else "",
    }
    return render_request(request, "approvals/frame_gate.html", context)


def _show_in_doubt(
    request: HttpRequest,
    approval: approval_views.ApprovalView,
    problem: RequestError | None,
    verdict: Verdict | None,
) -> HttpResponse:
    """Show the page of a call in doubt; `verdict` is that of the form just sent, `problem` its error."""
    is_first_step = decision_form.is_opened_by(request, problem)
    shared = build_page_context(request, approval, None if is_first_step else problem)
    context = {
        **shared,
        "late": outcomes.list_late_outcomes_of_call(
            approval.run, shared["transcript"], frame=approval.frame, call=approval.call
        ),
        "ready": approval.not_before is None or approval.not_before <= clock.read_time(),
        **decision_form.build_result_context(request, approval, problem),
        **decision_form.build_second_step_context(request, approval, problem),
        "outcome": verdict,
    }
    if time_limits.is_used_up():
        context["similar_left_out"] = True
    else:
        past = usual.read_history_before(approval)
        context["odd"] = usual.find_unusual_in_request(approval, past)
        # Few approvals of its tool say nothing: it may have needed none.
        context["past"] = past if past.is_enough else None
    return render_request(request, "approvals/in_doubt.html", context)


def _show_question(
    request: HttpRequest,
    approval: approval_views.ApprovalView,
    problem: RequestError | None,
    _: Verdict | None,
) -> HttpResponse:
    """Show the question and the form of its answer: a field for each property, or one for any other value."""
    shared = build_page_context(request, approval, problem)
    denied = decision_form.read_denied_turns(
        approval, related_requests.read_others(approval), shared["transcript"]
    )
    ends_run = decision_form.must_end_run(approval, denied, shared)
    schema = approval.result_schema
    wrong: dict[str, str] | None = None  # the problem of each field; None if it is not the answer
    if isinstance(problem, InvalidInput) and problem.field.startswith(_RESULT):
        _, wrong = _read_value(schema, request.POST)
        if not wrong:
            path = problem.field.removeprefix(_RESULT).removeprefix(".")
            if _form_schema(schema) is not schema:
                path = f"{_ANSWER}.{path}" if path else _ANSWER
            wrong = {path: problem.detail}
    fields, other = schema_form.fill_in(
        _build_fields(schema, with_defaults=not request.POST), request.POST, wrong or {}
    )
    args = approval.args
    text = args["question"] if isinstance(args, dict) and set(args) == {"question"} else args
    is_in_title = isinstance(text, str) and approval.sentence.endswith(f": {text}")
    context = {
        **shared,
        **decision_form.build_denial_context(approval, ends_run=ends_run),
        "question": None if is_in_title else text,
        "ends_run": ends_run,
        "fields": fields,
        "other": other,
        "wrong": wrong,
        "wrong_result": wrong is not None,
    }
    return render_request(request, "approvals/question.html", context)


_PAGES: Mapping[str, Callable[..., HttpResponse]] = {
    **dict.fromkeys(FRAME_GATES, _show_frame_gate),
    GateKind.QUESTION: _show_question,
    GateKind.IN_DOUBT: _show_in_doubt,
}


def _read_value(schema: Any, form_values: Mapping[str, str]) -> tuple[Any, dict[str, str]]:
    """Return the value that the form makes, and the problems of its fields, by path."""
    values, wrong = schema_form.read(_build_fields(schema), form_values)
    form_schema = _form_schema(schema)
    for path, detail in schema_form.list_problems(form_schema, values).items():
        wrong.setdefault(path, detail)
    if form_schema is schema:
        return values, wrong
    return values.get(_ANSWER), wrong


def _build_fields(schema: Any, *, with_defaults: bool = False) -> tuple[Field, ...]:
    form_schema = _form_schema(schema)
    values = _collect_nulls(schema_form.build_fields(form_schema, {}))
    if with_defaults:
        properties = json_schema.list_properties(form_schema)
        values |= {prop.name: prop.default for prop in properties if prop.default is not None}
    return schema_form.build_fields(form_schema, values)


def _form_schema(schema: Any) -> dict[str, Any]:
    """Return the schema itself if it is that of an object with properties, else that of an object with one field."""
    if isinstance(schema, dict) and json_schema.list_properties(schema):
        return schema
    rule = {name: value for name, value in (schema or {}).items() if name != "$defs"}
    return {
        "type": "object",
        "properties": {_ANSWER: {**rule, "title": "Answer"}},
        "required": [_ANSWER],
        "$defs": (schema or {}).get("$defs", {}),
    }


def _collect_nulls(fields: tuple[Field, ...]) -> dict[str, Any]:
    """Return null for each required property that may be null: left empty, it is null and not missing."""
    nulls = dict[str, Any]()
    for field in fields:
        name = field.path.rpartition(".")[2]
        if field.required and field.nullable:
            nulls[name] = None
        elif field.required and field.kind == "object" and (inside := _collect_nulls(field.inside)):
            nulls[name] = inside
    return nulls

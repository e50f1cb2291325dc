"""The page of a question that an agent asks: the question, and the form of its answer.

The form has its fields from the schema of the answer: those of its properties, or one for any other value.
"""

from collections.abc import Mapping
from typing import Any, Final

from django.http import HttpRequest, HttpResponse

from approvals.decisions import decide
from approvals.errors import DigestMismatch
from approvals.reads import approval_views, related_requests
from approvals.web.components import decision_form
from approvals.web.request.request_page import answer, page_context
from runtime.core.values import json_schema
from runtime.core.values.enums import Verdict
from runtime.errors import InvalidInput, RequestError
from runtime.ports.access import Actor
from runtime.web import schema_form
from runtime.web.requests import form_text
from runtime.web.schema_form import Field

_ANSWER: Final = "answer"  # the one field
_RESULT: Final = "result"  # as `decide` names the value


def page(
    request: HttpRequest,
    approval: approval_views.ApprovalView,
    problem: RequestError | None,
    _: Verdict | None,
) -> HttpResponse:
    """Show the page; `problem` is the error of the form just sent."""
    shared = page_context(request, approval, problem)
    denied = decision_form.read_denied_turns(
        approval, related_requests.read_others(approval), shared["transcript"]
    )
    ends_run = decision_form.ends_run(approval, denied, shared)
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
        _fields(schema, with_defaults=not request.POST), request.POST, wrong or {}
    )
    args = approval.args
    text = args["question"] if isinstance(args, dict) and set(args) == {"question"} else args
    is_in_title = isinstance(text, str) and approval.sentence.endswith(f": {text}")
    context = {
        **shared,
        **decision_form.denial_context(approval, ends_run=ends_run),
        "question": None if is_in_title else text,
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
    value, wrong = _read_value(approval.result_schema, request.POST)
    if wrong:
        digest = request.POST.get("digest")
        decide.require_open(approval_id=approval.id, digest=digest, actor=actor)
        raise InvalidInput("result", "does not fit")
    return value


def _read_value(schema: Any, form_values: Mapping[str, str]) -> tuple[Any, dict[str, str]]:
    """Return the value that the form makes, and the problems of its fields, by path."""
    values, wrong = schema_form.read(_fields(schema), form_values)
    form_schema = _form_schema(schema)
    for path, detail in schema_form.problems(form_schema, values).items():
        wrong.setdefault(path, detail)
    if form_schema is schema:
        return values, wrong
    return values.get(_ANSWER), wrong


def _fields(schema: Any, *, with_defaults: bool = False) -> tuple[Field, ...]:
    form_schema = _form_schema(schema)
    values = _nulls(schema_form.fields(form_schema, {}))
    if with_defaults:
        properties = json_schema.parts(form_schema)
        values |= {prop.name: prop.default for prop in properties if prop.default is not None}
    return schema_form.fields(form_schema, values)


def _form_schema(schema: Any) -> dict[str, Any]:
    """Return the schema itself if it is that of an object with properties, else that of an object with one field."""
    if isinstance(schema, dict) and json_schema.parts(schema):
        return schema
    rule = {name: value for name, value in (schema or {}).items() if name != "$defs"}
    return {
        "type": "object",
        "properties": {_ANSWER: {**rule, "title": "Answer"}},
        "required": [_ANSWER],
        "$defs": (schema or {}).get("$defs", {}),
    }


def _nulls(fields: tuple[Field, ...]) -> dict[str, Any]:
    """Return null for each required property that may be null: left empty, it is null and not missing."""
    nulls = dict[str, Any]()
    for field in fields:
        name = field.path.rpartition(".")[2]
        if field.required and field.nullable:
            nulls[name] = None
        elif field.required and field.kind == "object" and (inside := _nulls(field.inside)):
            nulls[name] = inside
    return nulls

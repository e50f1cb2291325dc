"""The form field for the result of a call: reported in doubt, or given instead of the call."""

from typing import Any

from django.http import HttpRequest

from approvals.reads.approval_views import ApprovalView
from approvals.requests import snapshot
from runtime.errors import InvalidInput, RequestError
from runtime.web.requests import form_text


def context(
    request: HttpRequest, approval: ApprovalView, problem: RequestError | None
) -> dict[str, Any]:
    """Build the context of the field: what the tool returns, and the text and the problem of the form just sent."""
    schema = approval.result_schema
    return {
        "returns_nothing": isinstance(schema, dict) and schema.get("type") == "null",
        "returns_text": snapshot.takes_text(schema),
        "result": form_text(request.POST, "result"),
        "wrong_result": isinstance(problem, InvalidInput) and problem.field.startswith("result"),
    }


def read(request: HttpRequest, approval: ApprovalView) -> Any:
    """Read the result from the form. An unreadable one is refused only to a person who may decide the request."""
    text = form_text(request.POST, "result")
    if approval.denial is not None or approval.status != "pending" or not text.strip():
        return snapshot.ABSENT
    return snapshot.read_result(text, approval.result_schema)

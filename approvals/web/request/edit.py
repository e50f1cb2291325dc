"""Approves a call with changes: a form of its arguments, then the differences and the button, then the decision.

If the tool has a preview, a worker previews the changed call before the button is there: the page of the differences
then has an address of its own, which shows the result when it has come.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from approvals.decisions import decide
from approvals.errors import AlreadyClosed, DigestMismatch, TamperedWith
from approvals.reads import approval_views, usual
from approvals.requests import confirmation
from approvals.requests.argument_changes import describe, list_changes
from approvals.rights import principals
from approvals.web import list_position as places
from approvals.web.components import decision_form
from approvals.web.components import preview as preview_card
from approvals.web.request.request_page import answer_already_closed, render_request, to_page
from runtime.control.edit import FIELD, is_previewed
from runtime.core.values import json_schema
from runtime.core.values.enums import Verdict
from runtime.core.values.limits import MAX_REASON
from runtime.errors import Forbidden, InvalidInput, KeyMissing, RequestError, Tampered
from runtime.keyring import sealing
from runtime.ports.access import Actor
from runtime.reads.trace.calls import CallRecord
from runtime.reads.transcript import Transcript
from runtime.store.tables.jobs import EditPreviewRow
from runtime.web import schema_form
from runtime.web.requests import read_text, users

_TEMPLATE = "approvals/edit.html"


def build_edit_context(
    approval: approval_views.ApprovalView, call: CallRecord | None, transcript: Transcript
) -> dict[str, Any]:
    """Return what the page of a request says of edits: its own changes, and the edit that replaced this call before."""
    edited = (
        approval.edited if isinstance(approval.edited, dict) and not approval.removed_at else None
    )
    changed = list_changes(_read_args(approval), edited) if edited is not None else []
    digest = None if call is None else call.digest
    equal_calls = (
        other
        for frame in transcript.frames()
        for other in frame.calls
        if digest and other.replaced == digest
    )
    spans = next((other.spans for other in equal_calls), ())
    return {
        "edited": approval.edited is not None,
        "changes": changed,
        "described_changes": describe(changed),
        "replaced": next((span for span in spans if span.verdict is Verdict.EDIT), None),
    }


@users.form
def edit(request: HttpRequest, approval_id: UUID) -> HttpResponse:
    """Show the form of the arguments; when it is sent, the differences and the button that decides.

    If the form is wrong, it is shown again, with everything that was typed. The page of a preview that failed sends
    the arguments themselves.
    """
    actor = principals.make_actor(request.user)
    approval = approval_views.read_approval(approval_id, actor=actor)
    if not approval.is_of_call:
        raise Http404
    if request.method != "POST":
        if approval.denial is not None or approval.status != "pending":
            return to_page(request, approval_id)
        return _show_form(request, approval, actor, None)
    schema, args = _open_part(approval)
    new_args, wrong, preview = read_arguments(request), dict[str, str](), None
    if not isinstance(new_args, dict):
        new_args, wrong = schema_form.read(schema_form.build_fields(schema, args), request.POST)
        new_args |= {
            name: value for name, value in _read_args(approval).items() if name not in args
        }
    for path, detail in schema_form.list_problems(schema, new_args).items():
        wrong.setdefault(path, detail)
    digest = request.POST.get("digest")
    try:
        # Also with a wrong field, so that only a person who may decide learns about fields.
        preview = decide.ask_preview(
            approval_id=approval.id, digest=digest, arguments=new_args, actor=actor
        )
    except AlreadyClosed as exc:
        return answer_already_closed(request, approval, Verdict.EDIT, exc)
    except (Forbidden, TamperedWith, DigestMismatch) as exc:
        return _show_form(request, approval, actor, exc)
    except InvalidInput as exc:
        wrong.setdefault(exc.field.removeprefix(FIELD).removeprefix("."), exc.detail)
    if wrong:
        return _show_form(request, approval, actor, InvalidInput(FIELD, ""), wrong)
    if preview is not None:
        address = reverse("previewed_edit", args=[approval.id, preview])
        return redirect(f"{address}{places.read_position(request).query}")
    return _review_page(request, approval, new_args, None)


@users.guard_page
def show_previewed_edit(request: HttpRequest, approval_id: UUID, preview: UUID) -> HttpResponse:
    """Show the differences, and what the changed call would do once a worker has said so."""
    actor = principals.make_actor(request.user)
    approval = approval_views.read_approval(approval_id, actor=actor)
    if approval.denial is not None or approval.status != "pending":
        return to_page(request, approval_id)
    row = decide.find_preview(approval_id=approval_id, preview=preview, actor=actor)
    if row is None:  # the person has asked for another one since
        return redirect("edit", approval_id)
    return _review_page(request, approval, _read_previewed_args(approval, row), None, row)


def show_again(
    request: HttpRequest, approval: approval_views.ApprovalView, problem: RequestError
) -> HttpResponse:
    """Show the differences again with the problem; the form, if the arguments themselves are refused."""
    new_args, row, actor = read_arguments(request), None, principals.make_actor(request.user)
    if (preview := request.POST.get("preview")) is not None:
        row = decide.find_preview(approval_id=approval.id, preview=preview, actor=actor)
        new_args = None if row is None else _read_previewed_args(approval, row)
    field = problem.field if isinstance(problem, InvalidInput) else ""
    if not isinstance(new_args, dict) or field.startswith(FIELD) or approval.denial is not None:
        return _show_form(request, approval, actor, problem)
    return _review_page(request, approval, new_args, problem, row)


def _show_form(
    request: HttpRequest,
    approval: approval_views.ApprovalView,
    actor: Actor,
    problem: RequestError | None,
    wrong: dict[str, str] | None = None,
) -> HttpResponse:
    schema, args = _open_part(approval)
    fields, other = schema_form.fill_in(
        schema_form.build_fields(schema, args), request.POST, wrong or {}
    )
    context = {
        **_build_page_context(request, approval, problem),
        "fields": fields,
        "other": other,
        "wrong": wrong,
        "secret": [name for name in _read_args(approval) if name not in args],
        "previews": is_previewed(approval.preview),
    }
    return render(request, _TEMPLATE, context, status=problem.status if problem else 200)


def _review_page(
    request: HttpRequest,
    approval: approval_views.ApprovalView,
    new_args: Mapping[str, Any],
    problem: RequestError | None,
    row: EditPreviewRow | None = None,
) -> HttpResponse:
    """Show the differences. The button that decides is there once the preview has come, if the tool makes one."""
    is_first_step = decision_form.is_opened_by(request, problem)
    odd = usual.group_by_argument(usual.find_unusual_in_edit(approval, new_args))
    confirm = approval.confirm
    if confirm is not None and not approval.holds:  # a held text has no name
        confirm = confirmation.name_edited_object(
            approval.tool, approval.sentence, approval.args, new_args
        )
    context = {
        **_build_page_context(request, approval, None if is_first_step else problem),
        **decision_form.build_second_step_context(request, approval, problem),
        **_build_preview_context(approval, row),
        "changes": [
            replace(change, odd=tuple(odd.pop(change.path.partition(".")[0], ())))
            for change in list_changes(_read_args(approval), new_args)
        ],
        "confirm": confirm,
        "sent": json.dumps(new_args, ensure_ascii=False),
    }
    return render_request(request, _TEMPLATE, context)


def _build_preview_context(
    approval: approval_views.ApprovalView, row: EditPreviewRow | None
) -> dict[str, Any]:
    """Return what the page says of the preview: its card, why there is none, or that a worker computes it."""
    if row is None:
        return {"may_approve": not is_previewed(approval.preview)}
    context: dict[str, Any] = {"edit_preview": row}
    if row.ended_at is None:
        return context
    if row.problem:
        return {**context, "failed": row.problem}
    try:
        result = row.preview()
    except (Tampered, KeyMissing):
        return {**context, "failed": "The stored preview does not verify."}
    if result.refused:
        return {**context, "refused": result.refused}
    return {
        **context,
        "may_approve": True,
        "preview": preview_card.build_card(result.document),
    }


def _read_previewed_args(
    approval: approval_views.ApprovalView, row: EditPreviewRow
) -> dict[str, Any]:
    """Return the arguments of the preview, as their reviewer reads them."""
    args: dict[str, Any] = sealing.open_args_for_reviewers(approval.tool, row.arguments)
    return args


def _build_page_context(
    request: HttpRequest, approval: approval_views.ApprovalView, problem: RequestError | None
) -> dict[str, Any]:
    return {
        "section": "inbox",
        "approval": approval,
        "list_query": places.read_position(request).query,
        "status": approval.status,
        "problem": problem,
        "stale": isinstance(problem, DigestMismatch),
        "reason": read_text(request.POST, "reason"),
        "max_reason": MAX_REASON,
    }


def read_arguments(request: HttpRequest) -> Any:
    """Return the arguments that the page of the differences sent, their text if it is not JSON, None without any."""
    if FIELD not in request.POST:
        return None
    text = read_text(request.POST, FIELD)
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _open_part(approval: approval_views.ApprovalView) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return schema and arguments without the secret ones, which stay as they are."""
    schema = approval.schema if isinstance(approval.schema, dict) else {}
    redacted = {name for name, value in _read_args(approval).items() if value == sealing.REDACTED}
    secret = redacted | json_schema.write_only(schema)
    rules, needed = schema.get("properties", {}), schema.get("required", [])
    open_schema = {
        **schema,
        "properties": {name: rule for name, rule in rules.items() if name not in secret},
        "required": [name for name in needed if name not in secret],
    }
    return open_schema, {
        name: value for name, value in _read_args(approval).items() if name not in secret
    }


def _read_args(approval: approval_views.ApprovalView) -> dict[str, Any]:
    return approval.args if isinstance(approval.args, dict) else {}

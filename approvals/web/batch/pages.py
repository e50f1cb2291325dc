"""The sheet of a batch: several requests in one table, decided with one button, each for itself."""

from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_http_methods, require_POST

from approvals import clock
from approvals.decisions import batch as decisions
from approvals.reads import approval_views, usual
from approvals.reads.approval_views import ApprovalView
from approvals.rights import principals
from approvals.web import place as places
from approvals.web.batch.sheet import Sheet, sheet
from approvals.web.parts import denial
from runtime.core.run.continuation import MAX_DENIALS
from runtime.core.values.enums import Verdict
from runtime.core.values.limits import MAX_REASON
from runtime.errors import InvalidInput
from runtime.web.requests import form_text


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def batch(request: HttpRequest) -> HttpResponse:
    """Show the sheet of the selected requests; decide the ticked ones when it is sent."""
    if request.method != "POST":
        return _sheet_page(request)
    items = _posted(request)
    try:
        outcomes = decisions.decide_each(
            items=items,
            verdict=_verdict(request),
            reason=denial.reason(request),
            count=request.POST.get("count", ""),
            actor=principals.actor_of(request.user),
        )
    except InvalidInput as exc:
        return _sheet_page(request, exc, items)
    return _result_page(request, outcomes, undone=False)


@require_POST
@login_required
def undo_batch(request: HttpRequest) -> HttpResponse:
    """Undo the decisions of a batch, each within its own undo window."""
    try:
        outcomes = decisions.undo_each(
            items=_ids(request.POST.getlist("item")), actor=principals.actor_of(request.user)
        )
    except InvalidInput as exc:
        return _sheet_page(request, exc)
    return _result_page(request, outcomes, undone=True)


def _sheet_page(
    request: HttpRequest,
    problem: InvalidInput | None = None,
    posted: dict[UUID, object] | None = None,
) -> HttpResponse:
    """Show the sheet; after a refused form, with its problem and the boxes as they were ticked."""
    actor = principals.actor_of(request.user)
    ids = _ids(request.GET.getlist("item")) or list(posted or {})
    too_many = len(ids) > decisions.MAX_ITEMS
    chosen = approval_views.several([] if too_many else ids, actor=actor)
    found = usual.of_requests(chosen, principals.principal_of(actor), limit=None)
    shown = sheet(chosen, found, missing=len(ids) - len(chosen), ticked=posted)
    place = places.read(request)
    refused = bool(problem) or too_many
    context = {
        "section": "inbox",
        "sheet": shown,
        "selected": len(ids),
        "too_many": too_many,
        "first": "&".join(f"item={one}" for one in ids[: decisions.MAX_ITEMS]),
        "problem": problem,
        "place": place.query,
        "kept": place.query.replace("?", "&"),
        "max_items": decisions.MAX_ITEMS,
        "counted_above": decisions.COUNTED_ABOVE,
        "max_denials": MAX_DENIALS,
        "max_reason": MAX_REASON,
        "reason": form_text(request.POST, "reason"),
        "count": form_text(request.POST, "count"),
        "deny_reasons": _deny_reasons(shown),
    }
    return render(request, "approvals/batch.html", context, status=422 if refused else 200)


def _result_page(
    request: HttpRequest, outcomes: tuple[decisions.BatchOutcome, ...], *, undone: bool
) -> HttpResponse:
    """Say what became of each request. If nothing was done, the status is that of the first refusal."""
    rows = [(one, _why(one)) for one in outcomes]
    done = [one.approval for one in outcomes if one.approval and not one.problem]
    undoable = [] if undone else [approval for approval in done if _can_be_undone(approval)]
    context = {
        "section": "inbox",
        "rows": rows,
        "done": done,
        "number": len(outcomes),
        "undone": undone,
        "undoable": undoable,
        "undo_until": min(
            (approval.effective_at for approval in undoable if approval.effective_at), default=None
        ),
        "verdict": str(_verdict(request)),
        "place": places.read(request).query,
    }
    problems = [one.problem.status for one in outcomes if one.problem]
    status = 200 if done else problems[0]
    return render(request, "approvals/batch_result.html", context, status=status)


def _can_be_undone(approval: ApprovalView) -> bool:
    return approval.effective_at is not None and approval.effective_at > clock.now()


def _why(outcome: decisions.BatchOutcome) -> str:
    """Say why nothing was done about a request; empty if it was decided."""
    if outcome.problem is None:
        return ""
    if isinstance(outcome.problem, InvalidInput):
        return f"The {outcome.problem.field} {outcome.problem.detail}."
    return outcome.problem.detail


def _verdict(request: HttpRequest) -> str:
    """Return the verdict of the button. A suggested reason denies at once if the browser runs no script."""
    chosen = form_text(request.POST, "preset")
    return str(Verdict.DENY) if chosen else form_text(request.POST, "verdict")


def _deny_reasons(shown: Sheet) -> Any:
    """Return the reasons that the tool suggests, the usual ones for several tools."""
    if len(shown.tables) != 1:
        return denial.REASONS
    first = shown.tables[0].lines[0].approval
    return denial.context(first, ends_run=False).get("deny_reasons", denial.REASONS)


def _posted(request: HttpRequest) -> dict[UUID, object]:
    """Return the ticked requests, each with the digest of what the sheet showed."""
    found = dict[UUID, object]()
    for one in request.POST.getlist("item"):
        given, _, digest = one.partition(":")
        found[_ids([given])[0]] = digest
    return found


def _ids(given: list[str]) -> list[UUID]:
    try:
        return list(dict.fromkeys(UUID(one) for one in given))
    except ValueError as exc:
        raise Http404 from exc

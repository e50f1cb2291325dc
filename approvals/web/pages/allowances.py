"""The pages of allowances: the list, one with its uses, and the two acts on it."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from approvals.errors import AllowanceRefused, UnknownAllowance
from approvals.governance import allowance_changes, allowance_list
from approvals.rights import principals
from runtime.core.values.limits import MAX_REASON
from runtime.errors import Forbidden, InvalidInput, RequestError
from runtime.ports.access import Actor
from runtime.web.requests import actor_of, form_text, visible_to


def _require_reader(actor: Actor) -> None:
    """Raise Forbidden for a person who neither decides nor administers."""
    if not allowance_changes.reads(principals.principal_of(actor)):
        raise Forbidden("not_eligible", "This person may not read allowances.")


@require_safe
@visible_to(_require_reader)
def allowances(request: HttpRequest) -> HttpResponse:
    """List the newest allowances: those that wait, those in force, and past ones."""
    rows, broken = allowance_list.rows(actor_of(request))
    context = {
        "section": "allowances",
        "proposed": [row for row in rows if row.state == "proposed"],
        "live": [row for row in rows if row.state == "in force"],
        "past": [row for row in rows if row.state not in ("proposed", "in force")],
        "broken": broken,
    }
    return render(request, "approvals/allowances.html", context)


@require_safe
@visible_to(_require_reader)
def allowance(request: HttpRequest, allowance_id: UUID) -> HttpResponse:
    """Show one allowance with its uses."""
    return _page(request, allowance_id)


@require_POST
@visible_to(_require_reader)
def confirm(request: HttpRequest, allowance_id: UUID) -> HttpResponse:
    """Put a proposed allowance in force."""
    return _changed(
        request,
        allowance_id,
        lambda actor: allowance_changes.confirm(allowance_id, actor=actor),
        "The allowance is in force.",
    )


@require_POST
@visible_to(_require_reader)
def revoke(request: HttpRequest, allowance_id: UUID) -> HttpResponse:
    """Revoke an allowance, or withdraw its proposal."""
    reason = form_text(request.POST, "reason")
    return _changed(
        request,
        allowance_id,
        lambda actor: allowance_changes.revoke(allowance_id, actor=actor, reason=reason),
        "The allowance is revoked. Calls wait for people again.",
    )


def _changed(
    request: HttpRequest, allowance_id: UUID, act: Callable[[Actor], None], message: str
) -> HttpResponse:
    """Carry out an act on an allowance, or show why it is refused."""
    try:
        act(actor_of(request))
    except UnknownAllowance as exc:
        raise Http404 from exc
    except (AllowanceRefused, Forbidden, InvalidInput) as refused:
        return _page(request, allowance_id, refused)
    messages.success(request, message)
    return redirect("allowance", allowance_id)


def _page(
    request: HttpRequest, allowance_id: UUID, problem: RequestError | None = None
) -> HttpResponse:
    try:
        row, uses = allowance_list.read_with_uses(allowance_id, actor_of(request))
    except UnknownAllowance as exc:
        raise Http404 from exc
    context: dict[str, Any] = {
        "section": "allowances",
        "row": row,
        "uses": uses,
        "more": row.allowance.used - len(uses),
        "problem": problem,
        "reason": form_text(request.POST, "reason"),
        "max_reason": MAX_REASON,
    }
    status = 200 if problem is None else problem.status
    return render(request, "approvals/allowance.html", context, status=status)

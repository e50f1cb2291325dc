"""One approval: what would happen, what surrounds it, and the two decisions."""

from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from approvals import actions, permissions, queries
from approvals.errors import AlreadyDecided, DigestMismatch, Invalid, NotFound
from approvals.views.arguments import arguments
from runtime import queries as runs
from runtime.core.decisions import EffectClass, Verdict
from runtime.ports import Actor, Forbidden

_EFFECTS: dict[str, str] = {
    EffectClass.IDEMPOTENT: "Can be repeated without harm: if a worker dies in the middle, the call"
    " is made again with the same idempotency key, so it takes effect once.",
    EffectClass.WRITE: "Happens once: if a worker dies in the middle, the call is never repeated on"
    " its own, and people are asked what became of it.",
}


@require_safe
@login_required
def approval(request: HttpRequest, approval: UUID) -> HttpResponse:
    actor = permissions.actor_of(request.user)
    return _page(request, _readable(approval, actor))


@require_POST
@login_required
def approve(request: HttpRequest, approval: UUID) -> HttpResponse:
    return _decide(request, approval, Verdict.APPROVE)


@require_POST
@login_required
def deny(request: HttpRequest, approval: UUID) -> HttpResponse:
    return _decide(request, approval, Verdict.DENY)


def _decide(request: HttpRequest, approval: UUID, verdict: Verdict) -> HttpResponse:
    actor = permissions.actor_of(request.user)
    # Browsers send line breaks as CRLF whatever was typed.
    reason = request.POST.get("reason", "").replace("\r\n", "\n")
    try:
        actions.decide(
            request=approval,
            verdict=verdict,
            digest=request.POST.get("digest"),
            reason=reason,
            actor=actor,
        )
    except NotFound as exc:
        raise Http404 from exc
    except AlreadyDecided:
        return _too_late(request, _readable(approval, actor), verdict, reason)
    except (Forbidden, DigestMismatch, Invalid) as exc:
        return _page(request, _readable(approval, actor), problem=exc, reason=reason)
    return redirect("approval", approval=approval)


def _too_late(
    request: HttpRequest, seen: queries.Approval, verdict: Verdict, reason: str
) -> HttpResponse:
    """The second of two clicks arrives where the first one led; anybody else is told who was first."""
    status = "approved" if verdict is Verdict.APPROVE else "denied"
    if seen.decided_by == request.user.get_username() and seen.status == status:
        return redirect("approval", approval=seen.id)
    context = {"place": "inbox", "approval": seen, "verdict": verdict, "reason": reason}
    return render(request, "conflict.html", context, status=409)


def _page(
    request: HttpRequest,
    shown: queries.Approval,
    *,
    problem: Forbidden | DigestMismatch | Invalid | None = None,
    reason: str = "",
) -> HttpResponse:
    progress = runs.progress(shown.run)
    context = {
        "place": "inbox",
        "approval": shown,
        "agent": shown.path[-2] if len(shown.path) > 1 else "The agent",
        "arguments": arguments(shown.args, shown.schema),
        "effect": _EFFECTS.get(shown.effect, shown.effect),
        "outlook": runs.outlook(progress, frame=shown.frame, call=shown.call),
        "call": progress.call(shown.frame, shown.call),
        "progress": progress,
        "problem": problem,
        "stale": isinstance(problem, DigestMismatch),
        "reason": reason,
        "max_reason": actions.MAX_REASON,
    }
    return render(request, "approval.html", context, status=_status(problem))


def _status(problem: Forbidden | DigestMismatch | Invalid | None) -> int:
    match problem:
        case None:
            return 200
        case Forbidden():
            return 403
        case _:
            return problem.status


def _readable(approval: UUID, actor: Actor) -> queries.Approval:
    try:
        return queries.approval(approval, actor=actor)
    except NotFound as exc:
        raise Http404 from exc

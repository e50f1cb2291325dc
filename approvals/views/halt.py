"""The page of a halt: why an agent stopped, and the two ways on."""

from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from approvals import actions, grants, permissions, queries
from approvals.errors import (
    AlreadyDecided,
    Cancelled,
    DigestMismatch,
    Expired,
    Invalid,
    NotFound,
)
from approvals.views.picture import answer, picture, readable, status_of, too_late, typed
from runtime.core.decisions import HALTS, GateKind, Verdict
from runtime.core.events import Change
from runtime.ports import Actor, Forbidden
from runtime.queries import Difference, differences

_SAID = {
    Verdict.CONTINUE: "The run goes on.",
    Verdict.STOP: "Stopped. The run is ended.",
}


@require_POST
@login_required
def go_on(request: HttpRequest, approval: UUID) -> HttpResponse:
    return _decide(request, approval, Verdict.CONTINUE)


@require_POST
@login_required
def stop(request: HttpRequest, approval: UUID) -> HttpResponse:
    return _decide(request, approval, Verdict.STOP)


def page(
    request: HttpRequest,
    shown: queries.Approval,
    actor: Actor,
    *,
    verdict: Verdict | None = None,
    problem: Forbidden | DigestMismatch | Invalid | None = None,
) -> HttpResponse:
    """`verdict` is the form that was sent, `problem` what was wrong with it."""
    context = {
        **picture(shown, permissions.standing_of(actor), problem),
        "verdict": verdict,
        "stale": isinstance(problem, DigestMismatch),
        "reason": typed(request, "reason"),
        "differences": _differences(shown),
        "grants": grants.fields(shown, request.POST),
    }
    return answer(request, "halt.html", context, status_of(problem))


def _differences(shown: queries.Approval) -> tuple[Difference, ...]:
    """What changed of the agent, at a version gate; nothing for a request that is not of ours."""
    if shown.kind != GateKind.VERSION:
        return ()
    try:
        return differences(Change(**change) for change in shown.args["changes"])
    except (KeyError, TypeError):
        return ()


def _decide(request: HttpRequest, approval: UUID, verdict: Verdict) -> HttpResponse:
    actor = permissions.actor_of(request.user)
    if readable(approval, actor).kind not in HALTS:
        raise Http404
    try:
        actions.decide(
            request=approval,
            verdict=verdict,
            digest=request.POST.get("digest"),
            reason=typed(request, "reason"),
            actor=actor,
            grant=grants.read(request.POST) or None if verdict is Verdict.CONTINUE else None,
        )
    except NotFound as exc:
        raise Http404 from exc
    except (AlreadyDecided, Cancelled, Expired) as exc:
        return too_late(request, readable(approval, actor), verdict, exc)
    except (Forbidden, DigestMismatch, Invalid) as exc:
        shown = readable(approval, actor)
        return page(request, shown, actor, verdict=verdict, problem=exc)
    messages.success(request, _SAID[verdict])
    return redirect("approval", approval=approval)

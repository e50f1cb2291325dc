"""A form for an action on a run: GET shows it, POST performs the action, and a refusal shows the form again."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from runtime.control.access import readable
from runtime.core.errors import NewerSchema
from runtime.core.limits import MAX_REASON
from runtime.errors import Forbidden, InvalidInput, KeyMissing, RequestError, Tampered
from runtime.ports.access import Actor
from runtime.queries.runs import RunDetail
from runtime.web.requests import actor_of, form_text

Refusal = RequestError | Tampered | KeyMissing | NewerSchema
Context = dict[str, Any]


def answer(
    request: HttpRequest,
    run: UUID,
    template: str,
    *,
    act: Callable[[Actor], UUID],
    context: Callable[[Actor, RunDetail, Refusal | None], Context],
) -> HttpResponse:
    """Show the form, or perform its action and redirect to the run that `act` returns."""
    actor, refusal = actor_of(request), None
    if request.method == "POST":
        try:
            return redirect("run", run=act(actor))
        except (RequestError, Tampered, KeyMissing, NewerSchema) as exc:
            refusal = exc
    shown = readable(run, actor)
    page = {"run": shown, **_fields(request, refusal), **context(actor, shown, refusal)}
    return render(request, template, page, status=_status(refusal))


def _fields(request: HttpRequest, refusal: Refusal | None) -> Context:
    """Return the context that all forms share. `unverified` names the stored data that does not verify."""
    return {
        "section": "runs",
        "reason": "" if isinstance(refusal, Forbidden) else form_text(request.POST, "reason"),
        "max_reason": MAX_REASON,
        "field": refusal if isinstance(refusal, InvalidInput) else None,
        "unverified": "" if isinstance(refusal, RequestError | None) else str(refusal),
    }


def _status(refusal: Refusal | None) -> int:
    if refusal is None:
        return 200
    return refusal.status if isinstance(refusal, RequestError) else 409

"""The page for cancelling a run: the consequences, and the form."""

from functools import partial
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_http_methods

from runtime.control.cancel import cancel as cancel_run
from runtime.errors import RunEnded
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.queries import runs
from runtime.queries.runs import RunDetail
from runtime.queries.transcript.transcript import read_transcript
from runtime.web.pages.action_form import Context, Refusal, answer
from runtime.web.requests import form_text


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def cancel(request: HttpRequest, run: UUID) -> HttpResponse:
    """Show the consequences of cancelling and the form; cancel the run on POST."""
    reason = form_text(request.POST, "reason")
    act = partial(_cancel, run, reason)
    return answer(request, run, "runs/cancel.html", act=act, context=_context)


def _cancel(run: UUID, reason: str, actor: Actor) -> UUID:
    try:
        return cancel_run(run=run, reason=reason, actor=actor).id
    except RunEnded:
        ending = read_transcript(run).ending
        if ending is None or ending.by != actor.person:
            raise
        return run  # a double click is redirected to the run


def _context(actor: Actor, shown: RunDetail, refusal: Refusal | None) -> Context:
    transcript = read_transcript(shown.id)
    return {
        "transcript": transcript,
        "traces": [call for call in transcript.calls() if call.has_side_effects],
        "may_cancel": wiring.access().may_cancel(actor, shown.requester),
        "cancel_requested": not shown.ended and runs.is_cancel_requested(shown.id),
        "late": isinstance(refusal, RunEnded),
    }

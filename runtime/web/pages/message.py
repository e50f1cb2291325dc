"""The page for sending a message to the agent of a run; the form is also on the run's page."""

from functools import partial
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_http_methods

from runtime.control.messages import send_message
from runtime.core.limits import MAX_MESSAGE
from runtime.errors import InvalidInput, RunEnded, TooManyUndelivered
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.queries.runs import RunDetail
from runtime.web.pages.action_form import Context, Refusal, answer
from runtime.web.requests import form_text


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def message(request: HttpRequest, run: UUID) -> HttpResponse:
    """Send a message to the agent. A refused message is shown again with the reason."""
    text, cuts = form_text(request.POST, "text"), bool(request.POST.get("cut_reply"))
    return answer(
        request,
        run,
        "runs/message.html",
        act=lambda actor: send_message(run=run, text=text, cut_reply=cuts, actor=actor).id,
        context=partial(_context, text, cuts),
    )


def _context(
    text: str, cuts: bool, actor: Actor, shown: RunDetail, refusal: Refusal | None
) -> Context:
    late, problem = shown.status if shown.ended else "", ""
    match refusal:
        case InvalidInput():
            problem = f"the text {refusal.detail}."
        case TooManyUndelivered():
            problem = refusal.detail
        case RunEnded():
            late = refusal.run_status
    return {
        "may_write": wiring.access().may_control(actor, shown.requester),
        "late": late,
        "text": text,
        "cuts": cuts,
        "problem": problem,
        "max_message": MAX_MESSAGE,
    }

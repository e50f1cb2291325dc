"""Writing to the agent of a run; the form itself is also on the run's page."""

from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from runtime import ports
from runtime.control.access import readable
from runtime.control.messages import send_message
from runtime.core.limits import MAX_MESSAGE
from runtime.errors import RunEnded, TooManyUnheard
from runtime.ports import Forbidden, InvalidInput
from runtime.views.asked import actor_of


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def message(request: HttpRequest, run: UUID) -> HttpResponse:
    """What the agent is to hear. A message that is not taken is shown again, with the reason."""
    if request.method != "POST":
        return _page(request, run)
    # Browsers send line breaks as CRLF whatever was typed.
    text = request.POST.get("text", "").replace("\r\n", "\n")
    try:
        send_message(run=run, text=text, actor=actor_of(request))
    except Forbidden:
        return _page(request, run, status=403)
    except InvalidInput as exc:
        return _page(request, run, text=text, problem=f"the text {exc.detail}.", status=422)
    except TooManyUnheard as exc:
        return _page(request, run, text=text, problem=str(exc), status=409)
    except RunEnded as exc:
        return _page(request, run, text=text, late=exc.run_status, status=409)
    return redirect("run", run=run)


def _page(
    request: HttpRequest,
    run: UUID,
    *,
    text: str = "",
    problem: str = "",
    late: str = "",
    status: int = 200,
) -> HttpResponse:
    actor = actor_of(request)
    shown = readable(run, actor)
    context = {
        "place": "runs",
        "run": shown,
        "may_write": ports.access().may_control(actor, shown.requester),
        "late": late or (shown.status if shown.ended else ""),
        "text": text,
        "problem": problem,
        "max_message": MAX_MESSAGE,
    }
    return render(request, "message.html", context, status=status)

"""The page on which an admin tries a version of a prompt on recorded runs."""

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from approvals.errors import PromptRefused, UnknownPrompt
from approvals.prompts import listing, trials
from runtime.errors import InvalidInput
from runtime.store.tables.prompt_trials import MAX_RUNS
from runtime.web.requests import actor_of, admins_only, form_text


@require_http_methods(["GET", "HEAD", "POST"])
@admins_only
def try_prompt(request: HttpRequest, name: str, number: int) -> HttpResponse:
    """Show the last trial of a version, or have a worker try it; 0 is the text in the code."""
    try:
        if request.method != "POST":
            return _page(request, name, number)
        given = form_text(request.POST, "runs").strip()
        runs = int(given) if given.isascii() and given.isdecimal() and len(given) < 5 else None
        try:
            trials.ask(name, number, runs, actor=actor_of(request))
        except InvalidInput as refused:
            problem = f"The number of {refused.field} {refused.detail}."
            return _page(request, name, number, problem=problem, status=422)
        except PromptRefused as refused:
            return _page(request, name, number, problem=str(refused), status=refused.status)
    except UnknownPrompt as exc:
        raise Http404 from exc
    messages.success(request, "A worker tries it. Reload this page to see how far it is.")
    return redirect("try_prompt", name=name, number=number)


def _page(
    request: HttpRequest, name: str, number: int, *, problem: str = "", status: int = 200
) -> HttpResponse:
    shown = listing.prompt(name)
    shown.text(number)
    context = {
        "section": "prompts",
        "prompt": shown,
        "number": number,
        "trial": trials.last(name, number),
        "counts": range(1, MAX_RUNS + 1),
        "chosen": form_text(request.POST, "runs") or "3",
        "problem": problem,
    }
    return render(request, "prompts/trial.html", context, status=status)

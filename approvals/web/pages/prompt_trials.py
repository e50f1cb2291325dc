"""The page on which an admin tries a version of a prompt on recorded runs."""

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.cache import patch_vary_headers
from django.views.decorators.http import require_http_methods

from approvals.errors import PromptRefused, UnknownPrompt
from approvals.governance import prompt_list, prompt_trials
from runtime.errors import InvalidInput
from runtime.store.tables.jobs.prompt_trials import MAX_RUNS, StoredTrial
from runtime.web.requests import actor_of, admins_only, form_text


@require_http_methods(["GET", "HEAD", "POST"])
@admins_only
def try_prompt(request: HttpRequest, name: str, number: int) -> HttpResponse:
    """Show the chosen or last trial of a version, or have a worker try it; 0 is the text in the code.

    For a page that is already open, only the part that changes.
    """
    try:
        if request.method != "POST":
            return _page(request, name, number)
        given = form_text(request.POST, "runs").strip()
        runs = int(given) if given.isascii() and given.isdecimal() and len(given) < 5 else None
        try:
            prompt_trials.ask(name, number, runs, actor=actor_of(request))
        except InvalidInput as refused:
            problem = f"The number of {refused.field} {refused.detail}."
            return _page(request, name, number, problem=problem, status=422)
        except PromptRefused as refused:
            return _page(request, name, number, problem=str(refused), status=refused.status)
    except UnknownPrompt as exc:
        raise Http404 from exc
    messages.success(request, "A worker tries it.")
    return redirect("try_prompt", name=name, number=number)


def _page(
    request: HttpRequest, name: str, number: int, *, problem: str = "", status: int = 200
) -> HttpResponse:
    shown = prompt_list.prompt(name)
    shown.text(number)
    listed = prompt_trials.listed(name, number)
    trial = _chosen(request, listed)
    context = {
        "section": "prompts",
        "prompt": shown,
        "number": number,
        "trial": trial,
        "others": [one for one in listed if trial and one.id != trial.stored.id],
        "is_last": trial is not None and trial.stored.id == listed[0].id,
        "is_open": bool(listed) and listed[0].ended_at is None,
        "counts": range(1, MAX_RUNS + 1),
        "chosen": form_text(request.POST, "runs") or "3",
        "problem": problem,
    }
    live = "HX-Request" in request.headers
    page = "prompts/trial.html#live" if live else "prompts/trial.html"
    answer = render(request, page, context, status=status)
    patch_vary_headers(answer, ["HX-Request"])
    return answer


def _chosen(
    request: HttpRequest, listed: list[StoredTrial]
) -> prompt_trials.PromptTrialView | None:
    """Return the trial of the address, without one the last; None if there is none. Raise UnknownPrompt."""
    wanted = request.GET.get("trial")
    if wanted is None:
        return prompt_trials.find(listed[0].id) if listed else None
    for one in listed:
        if str(one.id) == wanted:
            return prompt_trials.find(one.id)
    raise UnknownPrompt

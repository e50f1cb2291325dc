"""The page on which an admin tries a version of a prompt on recorded runs."""

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods

from approvals.errors import PromptRefused, UnknownPrompt
from approvals.governance import prompt_list, prompt_trials
from runtime.errors import InvalidInput
from runtime.store.tables.jobs import MAX_RUNS
from runtime.web.pages import job_list
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
        text = form_text(request.POST, "runs").strip()
        runs = int(text) if text.isascii() and text.isdecimal() and len(text) < 5 else None
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
    prompt = prompt_list.prompt(name)
    prompt.text(number)
    newest = prompt_trials.listed(name, number)
    job = job_list.requested_job(request, "trial", newest)
    context = {
        "section": "prompts",
        "prompt": prompt,
        "number": number,
        "trial": prompt_trials.find(job.id) if job else None,
        "counts": range(1, MAX_RUNS + 1),
        "run_count": form_text(request.POST, "runs") or "3",
        "problem": problem,
        **job_list.list_context(job, newest),
    }
    return job_list.render_live(request, "prompts/trial.html", context, status)

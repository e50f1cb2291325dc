"""The pages of prompts: the list, and one page with versions, labels, differences and the way to production.

The page on which an admin tries a version of a prompt on recorded runs.
"""

from collections.abc import Callable, Mapping
from functools import partial

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls.converters import StringConverter

from approvals.errors import PromptRefused
from approvals.governance import prompt_list, prompt_versions
from runtime.core.values.ids import PROMPT_NAME
from runtime.core.values.limits import MAX_INSTRUCTIONS, MAX_REASON
from runtime.errors import InvalidInput, RequestError
from runtime.store.tables.jobs import MAX_RUNS
from runtime.web.pages import recorded_runs
from runtime.web.requests import (
    admins,
    explain,
    read_actor,
    read_number,
    read_text,
    redirect_with,
    render_live,
)


class PromptName(StringConverter):
    """The name of a prompt in an address."""

    regex = PROMPT_NAME


@admins.guard_page
def show_prompts(request: HttpRequest) -> HttpResponse:
    """Show every prompt, which of its versions is in production, and what waits."""
    views = prompt_list.list_prompts(read_actor(request).person)
    return render(request, "prompts/list.html", {"section": "prompts", "prompts": views})


@admins.form
def show_prompt(request: HttpRequest, name: str) -> HttpResponse:
    """Show one prompt, or save a text as its next version."""
    if request.method != "POST":
        return _show_page(request, name)
    text, note = read_text(request.POST, "text"), read_text(request.POST, "note")
    try:
        number = prompt_versions.save(name, text, note=note, actor=read_actor(request))
    except (InvalidInput, PromptRefused) as refused:
        return _show_page(request, name, refused, draft=text, note=note)
    message = f"Version {number} is saved. New runs do not use it yet."
    return redirect_with(request, message, "prompt", name=name)


# The acts on a version: their function, and the new state of the version.
ACTS: Mapping[str, tuple[Callable[..., None], str]] = {
    "propose": (prompt_versions.propose, "is proposed for production"),
    "confirm": (prompt_versions.confirm, "is in production: new runs use it"),
    "withdraw": (prompt_versions.withdraw, "is not proposed any more"),
}


@admins.action
def change(request: HttpRequest, name: str, number: int, act: str) -> HttpResponse:
    """Do an act of the table on a version; 0 is the text in the code."""
    function, state = ACTS[act]
    return _change(request, name, number, partial(function, name, number), state)


@admins.action
def label_version(request: HttpRequest, name: str, number: int) -> HttpResponse:
    """Let a label point to a version."""
    text = read_text(request.POST, "label").strip()
    act = partial(prompt_versions.label_version, name, text, number)
    return _change(request, name, number, act, f"has the label {text}")


def _change(
    request: HttpRequest, name: str, number: int, act: Callable[..., None], state: str
) -> HttpResponse:
    """Carry out an act on a version, or show why it is refused."""
    try:
        act(actor=read_actor(request))
    except (InvalidInput, PromptRefused) as refused:
        return _show_page(request, name, refused)
    message = f"{prompt_versions.name_version(number)} {state}."
    return redirect_with(request, message, "prompt", name=name)


def _show_page(
    request: HttpRequest,
    name: str,
    refused: RequestError | None = None,
    *,
    draft: str | None = None,
    note: str = "",
) -> HttpResponse:
    view = prompt_list.read_prompt(name, read_actor(request).person)
    digits = len(str(prompt_versions.MAX_VERSIONS))
    before, after = (read_number(request.GET.get(name, ""), digits) for name in ("before", "after"))
    if before is None or after is None:
        before = view.production
    differences = None if after is None else prompt_list.compare_versions(view, before, after)
    current = view.current
    context = {
        "section": "prompts",
        "prompt": view,
        "draft": (current.text if current else "") if draft is None else draft,
        "note": note,
        "problem": explain(refused) if refused else "",
        "before": before,
        "after": after,
        "differences": differences,
        "max_text": MAX_INSTRUCTIONS,
        "max_note": MAX_REASON,
    }
    status = refused.status if refused else 200
    return render(request, "prompts/prompt.html", context, status=status)


@admins.form
def try_prompt(request: HttpRequest, name: str, number: int) -> HttpResponse:
    """Show the chosen or last trial of a version, or have a worker try it; 0 is the text in the code.

    For a page that is already open, only the part that changes.
    """
    if request.method != "POST":
        return _show_trial(request, name, number)
    runs = read_number(read_text(request.POST, "runs").strip(), digits=4)
    try:
        prompt_list.ask(name, number, runs, actor=read_actor(request))
    except InvalidInput as refused:
        problem = f"The number of {refused.field} {refused.detail}."
        return _show_trial(request, name, number, problem=problem, status=422)
    except PromptRefused as refused:
        return _show_trial(request, name, number, problem=str(refused), status=refused.status)
    return redirect_with(request, "A worker tries it.", "try_prompt", name=name, number=number)


def _show_trial(
    request: HttpRequest, name: str, number: int, *, problem: str = "", status: int = 200
) -> HttpResponse:
    prompt = prompt_list.read_prompt(name)
    prompt.text(number)
    newest = prompt_list.list_trials(name, number)
    job = recorded_runs.find_requested_job(request, "trial", newest)
    context = {
        "section": "prompts",
        "prompt": prompt,
        "number": number,
        "trial": prompt_list.find(job.id) if job else None,
        "counts": range(1, MAX_RUNS + 1),
        "run_count": read_text(request.POST, "runs") or "3",
        "problem": problem,
        **recorded_runs.list_context(job, newest),
    }
    return render_live(request, "prompts/trial.html", context, status)

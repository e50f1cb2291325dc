"""The pages of agents: the published agents, and the form that starts a run."""

from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID, uuid4

from django.conf import settings
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe

from agents.catalogue import queries
from agents.web.start_form import WHOLE, StartForm, start_once
from runtime.core.values.errors import NotJson
from runtime.errors import BusinessKeyConflict, Forbidden, InvalidInput, UnknownAgent
from runtime.ports import wiring
from runtime.reads import agent_picture, run_figures
from runtime.reads.runs import runs_page
from runtime.web.pages import query_params
from runtime.web.requests import actor_of, visible_to

RECENT = 10  # runs on the page of an agent
VERSIONS = 10  # versions on the page of an agent


# People who may not read agents get 404.
_readers = visible_to(lambda actor: wiring.access().require_agents(actor))


@require_safe
@_readers
def agents(request: HttpRequest) -> HttpResponse:
    """Show every agent that a worker published, or those that match a search. Sub-agents stand below the others."""
    published, called = queries.published(), wiring.catalogue().called()
    titles = wiring.catalogue().titles()
    return _list(
        request,
        "agents/list.html",
        lambda words: {
            "agents": [
                agent
                for agent in published
                if (words or (agent.is_startable and agent.name not in called))
                and _matches(
                    words,
                    agent.name,
                    titles.get(agent.name, ""),
                    agent.description,
                    _names(agent.tools),
                )
            ],
            "called": [agent for agent in published if not words and agent.name in called],
            "built_in": [agent for agent in published if not words and not agent.is_startable],
        },
    )


@require_safe
@_readers
def tools(request: HttpRequest) -> HttpResponse:
    """Show the tools of all published agents: their purpose, their agents, and how often they fail."""
    return _list(
        request,
        "agents/tools.html",
        lambda words: {
            "tools": [
                used
                for used in queries.tools()
                if _matches(words, used.tool.name, used.tool.description, *used.agents)
            ]
        },
    )


@require_safe
@_readers
def agent(request: HttpRequest, name: str) -> HttpResponse:
    """Show one agent: its input, tools and sub-agents, and its last runs that this person may read.

    Its instructions and their changes are shown to admins and to readers of its runs, who see them there anyway.
    """
    view, actor, access = _agent(name), actor_of(request), wiring.access()
    runs = runs_page(access.readable_runs(actor) & Q(agent=name), limit=RECENT)
    wordings = bool(runs.items) or access.reads_continuations(actor)
    versions = queries.versions(name, limit=VERSIONS, wordings=wordings)
    context = {
        "section": "agents",
        "agent": view,
        "callers": queries.callers(name),
        "picture": agent_picture.draw(name, wiring.catalogue().family(name)),
        "runs": runs.items,
        "versions": versions,
        "figures": run_figures.agent_figures(access.readable_runs(actor), name),
        "wordings": wordings,
        "address": f"{settings.PUBLIC_URL}{reverse('mcp-gateway', args=[name])}",
    }
    return render(request, "agents/detail.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@_readers
def start(request: HttpRequest, name: str) -> HttpResponse:
    """Show the form that starts a run of an agent, or start the run that it describes."""
    agent = _agent(name)
    if not agent.is_startable:
        raise Http404
    try:
        wiring.access().require(actor_of(request), "runs:start")
    except Forbidden as exc:
        return _page(request, StartForm(agent), refusal=exc)
    if request.method != "POST":
        return _page(request, StartForm(agent))
    return _start_run(request, StartForm(agent, request.POST))


def _list(
    request: HttpRequest, template: str, rows: Callable[[list[str]], dict[str, Any]]
) -> HttpResponse:
    """Show the rows that match the words of the search."""
    problem, text = None, ""
    try:
        text = query_params.search(request)
    except InvalidInput as exc:
        problem = exc
    context = {
        "section": "agents",
        "q": text or request.GET.get("q", ""),
        "problem": problem,
        **rows(text.lower().split()),
    }
    return render(request, template, context, status=422 if problem else 200)


def _matches(words: list[str], *texts: str) -> bool:
    """Tell whether every word occurs in one of the texts."""
    searched = "\n".join(texts).lower()
    return all(word in searched for word in words)


def _names(tools: Iterable[queries.ToolView]) -> str:
    return " ".join(tool.name for tool in tools)


def _start_run(request: HttpRequest, form: StartForm) -> HttpResponse:
    if not form.is_valid():
        return _page(request, form, status=422)
    values = form.cleaned_data
    try:
        run = start_once(
            form=_number(request),
            agent=form.agent.name,
            input=values[WHOLE],
            business_key=values["business_key"] or None,
            actor=actor_of(request),
            budget=form.budget,
            thread=values["thread"] or None,
        )
    except UnknownAgent as exc:
        raise Http404 from exc
    except Forbidden as exc:
        return _page(request, form, refusal=exc)
    except BusinessKeyConflict as exc:
        problem = "has started a run with another input already; choose another, or leave it empty"
        form.add_error("business_key", problem)
        return _page(request, form, status=exc.status)
    except InvalidInput as exc:
        form.add_error(exc.field if exc.field in form.fields else "business_key", exc.detail)
        return _page(request, form, status=422)
    except NotJson as exc:
        form.add_error("business_key", exc.detail)
        return _page(request, form, status=422)
    return redirect("run", run=run)


def _page(
    request: HttpRequest, form: StartForm, *, refusal: Forbidden | None = None, status: int = 200
) -> HttpResponse:
    context = {
        "section": "agents",
        "agent": form.agent,
        "form": form,
        "refusal": refusal,
        "number": _number(request),
    }
    return render(request, "agents/start.html", context, status=403 if refusal else status)


def _agent(name: str) -> queries.AgentView:
    view = queries.agent(name)
    if view is None:
        raise Http404
    return view


def _number(request: HttpRequest) -> UUID:
    """Return the number that the form came with, or a new one."""
    try:
        return UUID(request.POST.get("form", ""))
    except ValueError:
        return uuid4()

"""The pages of agents: the published agents, and the form that starts a run. Sent twice, it starts one run.

Text, whole numbers, numbers, yes or no, choices, mail addresses and dates have fields of their own; other values are
typed as JSON. Empty fields are omitted, so defaults apply; the schema reports missing required fields.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.forms import BoundField
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import path, reverse

from agents.catalogue import queries
from agents.models import FormSubmission
from agents.sdk import inputs
from runtime.control.start import start as start_run
from runtime.core.values.budgets import NAMES, BudgetLimits, name_unit, read_form_budget, to_text
from runtime.core.values.errors import NotJson
from runtime.core.values.json_schema import Property, format_example, list_properties
from runtime.core.values.limits import MAX_KEY
from runtime.errors import BusinessKeyConflict, Forbidden, InvalidInput, UnknownAgent
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.reads import agent_picture, run_figures, workers
from runtime.reads.run_rows import read_runs_page
from runtime.web import requests
from runtime.web.display import plain_visible
from runtime.web.forms import PageForm, TypedField
from runtime.web.requests import Audience, read_actor, read_form_number
from runtime.web.schema_form import as_typed, derive_kind, describe_property, list_choices

WHOLE = "input"  # the only field of a schema that is not an object's

_INPUT, _BUDGET = "in.", "budget."  # prefixes of the names of fields


class StartForm(PageForm):
    """The form of one agent."""

    business_key = TypedField(
        "Business key",
        optional=True,
        maximum=MAX_KEY,
        help="Your reference for this work, for example a ticket number. Starting again with the same key returns the"
        " same run.",
    )
    thread = TypedField("Thread", optional=True, maximum=MAX_KEY)

    def __init__(self, agent: queries.AgentView, data: Mapping[str, str] | None = None) -> None:
        super().__init__(data)
        self.agent = agent
        self.fields["thread"].help_text = (
            f"The name of a conversation. The run remembers {'a summary of ' if agent.sums_up else ''}the last"
            f" {agent.remembers} texts of earlier runs with this name that you may read. The people who started or"
            " steered those cannot decide in this one."
        )
        self.names = [prop.name for prop in list_properties(agent.schema)]
        self.fields |= {
            f"{_INPUT}{prop.name}": _build_field(prop) for prop in list_properties(agent.schema)
        }
        self.is_whole = not self.names and agent.schema.get("type") != "object"
        if self.is_whole:
            self.fields[_INPUT + WHOLE] = TypedField("Input", "json", rows=6, help="JSON")
        self.fields |= dict(_build_budget_fields())

    @property
    def input_fields(self) -> list[BoundField]:
        """The fields of the input."""
        return [self[name] for name in self.fields if name.startswith(_INPUT)]

    @property
    def budget_fields(self) -> list[BoundField]:
        """The fields of the limits."""
        return [self[name] for name in self.fields if name.startswith(_BUDGET)]

    @property
    def budget(self) -> dict[str, object]:
        """The limits as typed. The start of the run checks them."""
        return read_form_budget({name: self.cleaned_data[_BUDGET + name] for name in NAMES})

    def clean(self) -> dict[str, Any]:
        """Check the input against the schema of the agent."""
        values = self.cleaned_data
        value = values.get(_INPUT + WHOLE)
        if not self.is_whole:
            value = {name: values[_INPUT + name] for name in self.names if self._is_typed(name)}
        elif not self._is_typed(WHOLE) and _INPUT + WHOLE not in self.errors:
            self.add_error(_INPUT + WHOLE, "must be JSON")
        for problem in inputs.list_problems(self.agent.schema, value):
            name = self._name_of(problem)
            # An unreadable field is missing from the value. The reader must see why it is unreadable, not that it is
            # missing.
            if name not in self.errors:
                self.add_error(name, problem.detail)
        return {**values, WHOLE: value}

    def _is_typed(self, name: str) -> bool:
        """Return True if the field has a readable text."""
        name = _INPUT + name
        return name in self.cleaned_data and bool(self.data.get(name, "").strip())

    def _name_of(self, problem: InvalidInput) -> str | None:
        """Return the name of the field that a problem of the input belongs to."""
        if self.is_whole:
            return _INPUT + WHOLE
        path = problem.field.removeprefix(f"{WHOLE}.")
        names = (
            name for name in self.names if path == name or path.startswith((f"{name}.", f"{name}["))
        )
        name = next(names, None)
        return None if name is None else _INPUT + name


def start_once(
    *,
    form: UUID,
    agent: str,
    input: Any,
    business_key: str | None,
    actor: Actor,
    budget: object = None,
    thread: str | None = None,
) -> UUID:
    """Start a run from this form, or return the run that it started before.

    Of two concurrent submissions, the second waits for the first on the form's row, and then returns its run. Raise as
    runtime.control.start.start; the form may then be submitted again.
    """
    with transaction.atomic():
        row, _ = FormSubmission.objects.get_or_create(
            number=form, defaults={"person": actor.person}
        )
        if row.run is not None and row.person == actor.person:
            return row.run
        run = start_run(
            agent=agent,
            input=input,
            business_key=business_key,
            actor=actor,
            budget=budget,
            thread=thread,
        ).run
        FormSubmission.objects.filter(number=form).update(run=run)
        return run


def _build_field(prop: Property) -> TypedField:
    kind = derive_kind(prop.rule)
    example = format_example(prop.rule)
    example = f"for example {example}" if example else ""
    choices = [(value, plain_visible(label)) for value, label in list_choices(prop.rule)]
    if choices:
        choices.insert(0, ("", "choose one" if prop.required else "not given"))
    return TypedField(
        prop.title,
        kind,
        help=" · ".join(filter(None, (describe_property(prop), example))),
        optional=not prop.required,
        rows={"json": 6, "long": 1}.get(kind, 0),
        choices=choices,
        initial="" if prop.default is None else as_typed(kind, prop.default),
        required=prop.required,
    )


def _build_budget_fields() -> Iterator[tuple[str, TypedField]]:
    """Yield a field for each limit, with the installation's as its help."""
    bounds: BudgetLimits = settings.SIGNOFF_BUDGET or BudgetLimits()
    for name, limit in NAMES.items():
        unit, maximum = name_unit(limit), bounds.of(limit)
        yield (
            _BUDGET + name,
            TypedField(
                unit[0].upper() + unit[1:],
                inputmode="decimal",
                help=""
                if maximum is None
                else f"at most {to_text(limit, maximum)}, also the default",
            ),
        )


RECENT = 10  # runs on the page of an agent
VERSIONS = 10  # versions on the page of an agent


# People who may not read agents get 404.
readers = Audience(lambda actor: wiring.resolve_access().require_agents(actor))


@readers.guard_page
def show_agents(request: HttpRequest) -> HttpResponse:
    """Show every agent that a worker published, or those that match a search. Sub-agents stand below the others."""
    published, called = queries.list_agents(), wiring.resolve_catalogue().list_called()
    titles = wiring.resolve_catalogue().read_titles()
    return _list(
        request,
        "agents/list.html",
        lambda words: {
            "agents": [
                agent
                for agent in published
                if (words or (agent.is_startable and agent.name not in called))
                and _has_all_words(
                    words,
                    agent.name,
                    titles.get(agent.name, ""),
                    agent.description,
                    " ".join(tool.name for tool in agent.tools),
                )
            ],
            "called": [agent for agent in published if not words and agent.name in called],
            "built_in": [agent for agent in published if not words and not agent.is_startable],
        },
    )


@readers.guard_page
def show_tools(request: HttpRequest) -> HttpResponse:
    """Show the tools of all published agents: their purpose, their agents, and how often they fail."""
    return _list(
        request,
        "agents/tools.html",
        lambda words: {
            "tools": [
                used
                for used in queries.list_tools()
                if _has_all_words(words, used.tool.name, used.tool.description, *used.agents)
            ]
        },
    )


@readers.guard_page
def show_agent(request: HttpRequest, name: str) -> HttpResponse:
    """Show one agent: its input, tools and sub-agents, and its last runs that this person may read.

    Its instructions and their changes are shown to admins and to readers of its runs, who see them there anyway.
    """
    view, actor, access = _require_agent(name), read_actor(request), wiring.resolve_access()
    runs = read_runs_page(access.select_readable_runs(actor) & Q(agent=name), limit=RECENT)
    wordings = bool(runs.items) or access.may_read_continuations(actor)
    versions = queries.list_versions(name, limit=VERSIONS, wordings=wordings)
    context = {
        "section": "agents",
        "agent": view,
        "callers": queries.list_callers(name),
        "picture": agent_picture.draw(name, wiring.resolve_catalogue().read_family(name)),
        "runs": runs.items,
        "versions": versions,
        "figures": run_figures.read_agent_figures(access.select_readable_runs(actor), name),
        "wordings": wordings,
        "address": f"{settings.PUBLIC_URL}{reverse('mcp-gateway', args=[name])}",
    }
    return render(request, "agents/detail.html", context)


@readers.form
def start(request: HttpRequest, name: str) -> HttpResponse:
    """Show the form that starts a run of an agent, or start the run that it describes."""
    agent = _require_agent(name)
    if not agent.is_startable:
        raise Http404
    try:
        wiring.resolve_access().require(read_actor(request), "runs:start")
    except Forbidden as exc:
        return _show_form(request, StartForm(agent), refusal=exc)
    if request.method != "POST":
        return _show_form(request, StartForm(agent))
    form = StartForm(agent, request.POST)
    if not form.is_valid():
        return _show_form(request, form, status=422)
    values = form.cleaned_data
    try:
        run = start_once(
            form=read_form_number(request),
            agent=agent.name,
            input=values[WHOLE],
            business_key=values["business_key"] or None,
            actor=read_actor(request),
            budget=form.budget,
            thread=values["thread"] or None,
        )
    except UnknownAgent as exc:
        raise Http404 from exc
    except Forbidden as exc:
        return _show_form(request, form, refusal=exc)
    except BusinessKeyConflict as exc:
        problem = "has started a run with another input already; choose another, or leave it empty"
        form.add_error("business_key", problem)
        return _show_form(request, form, status=exc.status)
    except InvalidInput as exc:
        form.add_error(exc.field if exc.field in form.fields else "business_key", exc.detail)
        return _show_form(request, form, status=422)
    except NotJson as exc:
        form.add_error("business_key", exc.detail)
        return _show_form(request, form, status=422)
    return redirect("run", run=run)


def _list(
    request: HttpRequest, template: str, rows: Callable[[list[str]], dict[str, Any]]
) -> HttpResponse:
    """Show the rows that match the words of the search."""
    problem, text = None, ""
    try:
        text = requests.read_search_text(request)
    except InvalidInput as exc:
        problem = exc
    context = {
        "section": "agents",
        "q": text or request.GET.get("q", ""),
        "problem": problem,
        **rows(text.lower().split()),
    }
    return render(request, template, context, status=422 if problem else 200)


def _has_all_words(words: list[str], *texts: str) -> bool:
    """Tell whether every word occurs in one of the texts."""
    searched = "\n".join(texts).lower()
    return all(word in searched for word in words)


def _show_form(
    request: HttpRequest, form: StartForm, *, refusal: Forbidden | None = None, status: int = 200
) -> HttpResponse:
    context = {
        "section": "agents",
        "agent": form.agent,
        "form": form,
        "refusal": refusal,
        "number": read_form_number(request),
        "has_worker": form.agent.name in workers.read_live_versions(workers.ALIVE),
    }
    return render(request, "agents/start.html", context, status=403 if refusal else status)


def _require_agent(name: str) -> queries.AgentView:
    view = queries.find_agent(name)
    if view is None:
        raise Http404
    return view


urlpatterns = [
    path("agents/", show_agents, name="agents"),
    path("tools/", show_tools, name="tools"),
    path("agents/<path:name>/start/", start, name="start"),
    path("agents/<path:name>/", show_agent, name="agent"),
]

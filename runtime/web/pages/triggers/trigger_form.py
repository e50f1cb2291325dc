"""The form that makes or changes a trigger, and tries it on events before that."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from runtime.core.limits import MAX_EVENT_NAME
from runtime.core.schemas import json_schema
from runtime.errors import InvalidInput, KeyMissing, NoSuchTrigger, RequestError, Tampered
from runtime.triggers.events import changes, listing, places
from runtime.triggers.events.definition import SOURCES, Definition
from runtime.triggers.events.listing import Trial
from runtime.triggers.fields import MAX_NAME
from runtime.triggers.listing import input_schema
from runtime.web.pages.triggers.acts import choose_agent, starters
from runtime.web.pages.triggers.triggers import page as trigger_page
from runtime.web.requests import actor_of, form_text
from runtime.web.schema_fields import InvalidValue, as_typed, value_of

TEXTS = ("name", "event", "filter", "key", "business_key", *SOURCES, "wakes", "thread")
NUMBERS = ("at_once", "at_once_per_key", "debounce", "rate", "rate_seconds")
JSON = ("mapping", "sample")
EMPTY = {"debounce": "0", "rate_seconds": "60"}
SAMPLE = {"id": "hire-1", "source": "", "data": {}}


@dataclass(kw_only=True)
class _Form:
    """The agent, the texts as sent, the problems by field, and the results of a trial."""

    agent: str
    texts: dict[str, str]
    problems: dict[str, str] = field(default_factory=dict)
    refusal: RequestError | None = None
    trials: list[Trial] | None = None


@require_http_methods(["GET", "HEAD", "POST"])
@starters
def new(request: HttpRequest) -> HttpResponse:
    """Choose an agent, then fill in, try or send the form of its trigger."""
    agent = request.POST.get("agent") or request.GET.get("agent") or ""
    schema = input_schema(agent)
    if schema is None:
        return choose_agent(request, agent, "triggers", "trigger")
    if request.method != "POST":
        return _page(request, _Form(agent=agent, texts={**EMPTY, **_suggested(schema)}))
    return _sent(request, agent, None)


@require_http_methods(["GET", "HEAD", "POST"])
@starters
def change(request: HttpRequest, id: UUID) -> HttpResponse:
    """Show the definition of a trigger, try another one, or change it."""
    try:
        shown = listing.one(id, actor_of(request))
    except NoSuchTrigger as exc:
        raise Http404 from exc
    except (Tampered, KeyMissing):
        return trigger_page(request, id)
    said = shown.definition
    if request.method != "POST":
        return _page(request, _Form(agent=said.agent, texts=_texts(said)), id)
    return _sent(request, said.agent, id)


def _sent(request: HttpRequest, agent: str, id: UUID | None) -> HttpResponse:
    """Try, make or change the trigger of the form; or show the form again, with each problem at its field."""
    form, sent = _read(agent, request.POST)
    if form.problems:
        return _page(request, form, id, status=422)
    sample, actor = sent.pop("sample"), actor_of(request)
    try:
        if "try" in request.POST:
            form.trials = listing.tried(sent, actor, sample=sample, id=id)
            return _page(request, form, id)
        if id is None:
            made = changes.create(sent=sent, actor=actor, form=_number(request))
            return redirect("trigger", made)
        changes.change(id=id, sent=sent, actor=actor)
    except NoSuchTrigger as exc:
        raise Http404 from exc
    except RequestError as exc:
        return _refused(request, form, exc, id)
    return redirect("trigger", id)


def _read(agent: str, posted: QueryDict) -> tuple[_Form, dict[str, Any]]:
    """Return the form as sent, with its unreadable fields, and the trigger that it makes."""
    texts = {name: form_text(posted, name).strip() for name in (*TEXTS, *NUMBERS, *JSON)}
    form = _Form(agent=agent, texts=texts)
    sent: dict[str, Any] = {"agent": agent, **{name: texts[name] for name in TEXTS}}
    for name in (*NUMBERS, *JSON):
        kind = "json" if name in JSON else "integer"
        try:
            sent[name] = value_of(kind, texts[name]) if texts[name] else None
        except InvalidValue as exc:
            form.problems[name] = str(exc)
    if sent.get("mapping", 0) is None:
        sent["mapping"] = {}
    return form, sent


def _refused(request: HttpRequest, form: _Form, exc: RequestError, id: UUID | None) -> HttpResponse:
    """Show the form again, with the problem at its field."""
    for one in [exc, *exc.others] if isinstance(exc, InvalidInput) else [exc]:
        name = (one.field or "").partition(".")[0].partition("[")[0]
        if name in form.texts:
            inside = (one.field or "").removeprefix(name).lstrip(".")
            said = f"{inside}: {one.detail}" if inside else one.detail
            before = form.problems.get(name)
            form.problems[name] = f"{before}; {said}" if before else said
    form.refusal = None if form.problems else exc
    return _page(request, form, id, status=exc.status)


def _suggested(schema: Mapping[str, Any]) -> dict[str, str]:
    """Return a mapping with a field of the event for each field of the input."""
    names = [part.name for part in json_schema.parts(schema)]
    mapping = {name: f"{{{{data.{name}}}}}" for name in names}
    sample = {**SAMPLE, "data": dict.fromkeys(names, "…")}
    return {"mapping": as_typed("json", mapping), "sample": as_typed("json", sample)}


def _texts(said: Definition) -> dict[str, str]:
    """Return the texts of the fields for a trigger."""
    numbers = {name: getattr(said, name) for name in NUMBERS}
    return {
        **{name: getattr(said, name) for name in TEXTS},
        **{name: "" if number is None else str(number) for name, number in numbers.items()},
        "mapping": as_typed("json", said.mapping),
    }


def _number(request: HttpRequest) -> UUID:
    """Return the number of the form: sent twice, it makes one trigger."""
    try:
        return UUID(request.POST.get("form", ""))
    except ValueError:
        return uuid4()


def _page(
    request: HttpRequest, form: _Form, id: UUID | None = None, *, status: int = 200
) -> HttpResponse:
    context = {
        "section": "triggers",
        "id": id,
        "number": _number(request),
        "form": form,
        "max_name": MAX_NAME,
        "max_event": MAX_EVENT_NAME,
        "folders": places.folders(),
        "streams": places.streams(),
        "buckets": places.buckets(),
    }
    return render(request, "triggers/form.html", context, status=status)

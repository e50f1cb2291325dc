"""The form that makes or changes a schedule. The fields of its input come from the schema of its agent."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from runtime.errors import (
    Forbidden,
    InvalidInput,
    KeyMissing,
    NoSuchSchedule,
    RequestError,
    Tampered,
)
from runtime.triggers import calendar, changes, listing
from runtime.triggers.definition import Definition, Missed, Overlap
from runtime.triggers.fields import MAX_NAME
from runtime.web import schema_form
from runtime.web.pages.triggers.acts import choose_agent, starters
from runtime.web.pages.triggers.schedules import page as schedule_page
from runtime.web.requests import actor_of, form_text
from runtime.web.schema_fields import InvalidValue, as_typed, value_of
from runtime.web.schema_form import Field

UNITS = {"minutes": 60, "hours": 3600, "days": 86400, "seconds": 1}
TEXTS = (
    "name",
    "cron",
    "every",
    "zone",
    "starts_at",
    "ends_at",
    "missed",
    "overlap",
    "jitter",
    "thread",
)
WHOLE = "input"  # the field of an input that is no object
# A text may hold {{date}} or {{time}}, which the fields for dates and times do not accept.
_AS_TEXT = ("date", "moment")
EMPTY = {"missed": Missed.ONCE, "overlap": Overlap.SKIP, "jitter": "0"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """The agent, the fields of its input, the texts as sent, and the problems by field."""

    agent: str
    fields: tuple[Field, ...]
    texts: dict[str, str]
    problems: dict[str, str]


@require_http_methods(["GET", "HEAD", "POST"])
@starters
def new(request: HttpRequest) -> HttpResponse:
    """Choose an agent, then say when it starts on which input; or make the schedule."""
    agent = request.POST.get("agent") or request.GET.get("agent") or ""
    schema = listing.input_schema(agent)
    if schema is None:
        return choose_agent(request, agent, "schedules", "schedule")
    fields = _fields(schema, {})
    if request.method != "POST":
        texts = {**EMPTY, "zone": timezone.get_current_timezone_name()}  # that of the reader
        form = _Form(agent=agent, fields=fields, texts=texts, problems={})
        return _page(request, form)
    form, sent = _read(agent, schema, fields, request.POST)
    if form.problems:
        return _page(request, form, status=422)
    try:
        made = changes.create(sent=sent, actor=actor_of(request), form=_number(request))
    except (InvalidInput, RequestError) as exc:
        return _refused(request, form, exc)
    return redirect("schedule", made)


@require_http_methods(["GET", "HEAD", "POST"])
@starters
def change(request: HttpRequest, id: UUID) -> HttpResponse:
    """Show what a schedule says, or change it."""
    try:
        shown = listing.one(id, actor_of(request))
    except NoSuchSchedule as exc:
        raise Http404 from exc
    except (Tampered, KeyMissing):
        return schedule_page(request, id)
    said = shown.definition
    schema = listing.input_schema(said.agent) or {}
    given = said.input if isinstance(said.input, dict) else {}
    fields = _fields(schema, given)
    if request.method != "POST":
        form = _Form(agent=said.agent, fields=fields, texts=_texts(said), problems={})
        return _page(request, form, id)
    form, sent = _read(said.agent, schema, fields, request.POST)
    if form.problems:
        return _page(request, form, id, status=422)
    try:
        changes.change(id=id, sent=sent, actor=actor_of(request))
    except RequestError as exc:
        return _refused(request, form, exc, id)
    return redirect("schedule", id)


def _number(request: HttpRequest) -> UUID:
    """Return the number of the form: sent twice, it makes one schedule."""
    try:
        return UUID(request.POST.get("form", ""))
    except ValueError:
        return uuid4()


def _fields(schema: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[Field, ...]:
    return tuple(map(_plain, schema_form.fields(schema, given)))


def _plain(field: Field) -> Field:
    kind = "text" if field.kind in _AS_TEXT else field.kind
    raw = field.value if kind != field.kind and isinstance(field.value, str) else field.raw
    return replace(field, kind=kind, raw=raw, inside=tuple(map(_plain, field.inside)))


def _read(
    agent: str, schema: Mapping[str, Any], fields: tuple[Field, ...], posted: QueryDict
) -> tuple[_Form, dict[str, Any]]:
    """Return the form as sent, with its unreadable fields, and the schedule that it makes."""
    texts = {name: form_text(posted, name).strip() for name in (*TEXTS, "unit", WHOLE)}
    problems: dict[str, str] = {}
    sent: dict[str, Any] = {"agent": agent, **{name: texts[name] for name in TEXTS}}
    sent["every"] = _seconds(texts, "every", problems, UNITS.get(texts["unit"], 60))
    sent["jitter"] = _seconds(texts, "jitter", problems, 1) or 0
    value, wrong = schema_form.read(fields, posted)
    sent["input"] = value
    if not fields and schema.get("type") != "object":
        try:
            sent["input"] = value_of("json", texts[WHOLE])
        except InvalidValue as exc:
            problems[WHOLE] = str(exc)
    filled, others = schema_form.shown(fields, posted, wrong)
    if wrong:
        problems[WHOLE] = "; ".join(others) or "has marked fields"
    return _Form(agent=agent, fields=filled, texts=texts, problems=problems), sent


def _seconds(
    texts: Mapping[str, str], name: str, problems: dict[str, str], unit: int
) -> int | None:
    if not texts[name]:
        return None
    try:
        return int(value_of("integer", texts[name])) * unit
    except InvalidValue as exc:
        problems[name] = str(exc)
        return None


def _texts(said: Definition) -> dict[str, str]:
    """Return what the fields of a schedule show."""
    zone = ZoneInfo(said.zone)
    unit = max((u for u in UNITS if (said.every or 60) % UNITS[u] == 0), key=UNITS.__getitem__)

    def local(at: datetime | None) -> str:
        return "" if at is None else at.astimezone(zone).replace(tzinfo=None).isoformat()

    return {
        "name": said.name,
        "cron": said.cron,
        "every": "" if said.every is None else str(said.every // UNITS[unit]),
        "unit": unit,
        "zone": said.zone,
        "starts_at": local(said.starts_at),
        "ends_at": local(said.ends_at),
        "missed": said.missed,
        "overlap": said.overlap,
        "jitter": str(said.jitter),
        "thread": said.thread,
        WHOLE: as_typed("json", said.input),
    }


def _refused(
    request: HttpRequest, form: _Form, exc: RequestError, id: UUID | None = None
) -> HttpResponse:
    """Show the form again, with the problem at its field."""
    if isinstance(exc, NoSuchSchedule):
        raise Http404 from exc
    found = [exc, *exc.others] if isinstance(exc, InvalidInput) else [exc]
    inside = {
        (one.field or "").removeprefix(f"{WHOLE}").removeprefix("."): one.detail
        for one in found
        if (one.field or "").startswith(WHOLE)
    }
    filled, others = schema_form.shown(form.fields, request.POST, inside)
    problems = {one.field: one.detail for one in found if one.field and one.field in TEXTS}
    if inside:
        problems[WHOLE] = "; ".join(others) or "has marked fields"
    form = replace(form, fields=filled, problems=problems)
    refusal = exc if isinstance(exc, Forbidden) or not problems else None
    return _page(request, form, id, refusal=refusal, status=exc.status)


def _page(
    request: HttpRequest,
    form: _Form,
    id: UUID | None = None,
    *,
    refusal: RequestError | None = None,
    status: int = 200,
) -> HttpResponse:
    context = {
        "section": "schedules",
        "id": id,
        "number": _number(request),
        "form": form,
        "refusal": refusal,
        "whole": not form.fields,
        "units": UNITS,
        "max_name": MAX_NAME,
        "max_cron": calendar.MAX_CRON,
        "max_jitter": calendar.MAX_JITTER,
    }
    return render(request, "schedules/form.html", context, status=status)

"""The form of a schedule. The fields of its input come from the schema of its agent."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from django.http import QueryDict
from django.utils import timezone

from runtime.errors import InvalidInput, RequestError
from runtime.triggers import calendar
from runtime.triggers.schedule_definition import Missed, Overlap, ScheduleDefinition
from runtime.web import schema_form
from runtime.web.pages.triggers.form_state import FormState
from runtime.web.requests import form_text
from runtime.web.schema_fields import InvalidValue, as_typed, value_of
from runtime.web.schema_form import Field

UNITS = {"minutes": 60, "hours": 3600, "days": 86400, "seconds": 1}
TEXTS = (
    *("name", "cron", "every", "zone", "starts_at", "ends_at"),
    *("missed", "overlap", "jitter", "thread"),
)
INPUT = "input"  # the field of an input that is not an object
# A text may hold {{date}} or {{time}}, which the fields for dates and times do not accept.
_AS_TEXT = ("date", "moment")
_MARKED = "has marked fields"
EMPTY = {"missed": Missed.ONCE, "overlap": Overlap.SKIP, "jitter": "0"}
OPTIONS = {"units": UNITS, "max_cron": calendar.MAX_CRON}


def blank(agent: str, schema: Mapping[str, Any]) -> FormState:
    """Return the form for a new schedule, in the time zone of the reader."""
    texts = {**EMPTY, "zone": timezone.get_current_timezone_name()}
    return FormState(agent=agent, texts=texts, options=OPTIONS, fields=_fields(schema, None))


def fill(definition: ScheduleDefinition, schema: Mapping[str, Any]) -> FormState:
    """Return the form for a schedule that is there."""
    every = definition.every or 60
    unit = max((unit for unit in UNITS if every % UNITS[unit] == 0), key=UNITS.__getitem__)
    zone = ZoneInfo(definition.zone)

    def local(at: datetime | None) -> str:
        return "" if at is None else at.astimezone(zone).replace(tzinfo=None).isoformat()

    texts = {
        **{name: str(getattr(definition, name)) for name in TEXTS},
        "every": "" if definition.every is None else str(definition.every // UNITS[unit]),
        "unit": unit,
        "starts_at": local(definition.starts_at),
        "ends_at": local(definition.ends_at),
        INPUT: as_typed("json", definition.input),
    }
    fields = _fields(schema, definition)
    return FormState(agent=definition.agent, texts=texts, options=OPTIONS, fields=fields)


def read(
    agent: str,
    schema: Mapping[str, Any],
    posted: QueryDict,
    definition: ScheduleDefinition | None,
) -> FormState:
    """Return the form as sent, with its unreadable fields, and the schedule that it makes."""
    fields = _fields(schema, definition)
    texts = {name: form_text(posted, name).strip() for name in (*TEXTS, "unit", INPUT)}
    form = FormState(agent=agent, texts=texts, options=OPTIONS)
    value, wrong = schema_form.read(fields, posted)
    form.sent = {
        "agent": agent,
        **{name: texts[name] for name in TEXTS},
        "every": _read_seconds(form, "every", UNITS.get(texts["unit"], 60)),
        "jitter": _read_seconds(form, "jitter", 1) or 0,
        "input": value,
    }
    if not fields and schema.get("type") != "object":
        try:
            form.sent["input"] = value_of("json", texts[INPUT])
        except InvalidValue as exc:
            form.problems[INPUT] = str(exc)
    form.fields, others = schema_form.shown(fields, posted, wrong)
    if wrong:
        form.problems[INPUT] = "; ".join(others) or _MARKED
    return form


def mark(form: FormState, exc: RequestError, posted: QueryDict) -> None:
    """Write a refusal to its fields, if it names some."""
    inside: dict[str, str] = {}
    for problem in [exc, *exc.others] if isinstance(exc, InvalidInput) else [exc]:
        field = problem.field or ""
        if field.startswith(INPUT):
            inside[field.removeprefix(INPUT).removeprefix(".")] = problem.detail
        elif field in TEXTS:
            form.problems[field] = problem.detail
    form.fields, others = schema_form.shown(form.fields, posted, inside)
    if inside:
        form.problems[INPUT] = "; ".join(others) or _MARKED


def _fields(schema: Mapping[str, Any], definition: ScheduleDefinition | None) -> tuple[Field, ...]:
    value = definition.input if definition is not None else None
    args = value if isinstance(value, dict) else {}
    return tuple(map(_plain, schema_form.fields(schema, args)))


def _plain(field: Field) -> Field:
    kind = "text" if field.kind in _AS_TEXT else field.kind
    raw = field.value if kind != field.kind and isinstance(field.value, str) else field.raw
    return replace(field, kind=kind, raw=raw, inside=tuple(map(_plain, field.inside)))


def _read_seconds(form: FormState, name: str, unit: int) -> int | None:
    if not form.texts[name]:
        return None
    try:
        return int(value_of("integer", form.texts[name])) * unit
    except InvalidValue as exc:
        form.problems[name] = str(exc)
        return None

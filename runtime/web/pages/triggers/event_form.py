"""The form of a trigger by events. The fields of its source come from the registry of sources."""

from collections.abc import Mapping
from typing import Any

from django.http import QueryDict

from runtime.core.limits import MAX_EVENT_NAME
from runtime.core.schemas import json_schema
from runtime.errors import InvalidInput, RequestError
from runtime.triggers.event_definition import EventDefinition
from runtime.triggers.sources.registry import SOURCES
from runtime.web.pages.triggers.form_state import FormState
from runtime.web.requests import form_text
from runtime.web.schema_fields import InvalidValue, as_typed, value_of

TEXTS = ("name", "event", "filter", "key", "business_key", "wakes", "thread")
NUMBERS = ("at_once", "at_once_per_key", "debounce", "rate", "rate_seconds")
JSON = ("mapping", "sample")
EMPTY = {"debounce": "0", "rate_seconds": "60"}
SAMPLE = {"id": "hire-1", "source": "", "data": {}}
OPTIONS = {"max_event": MAX_EVENT_NAME}


def blank(agent: str, schema: Mapping[str, Any]) -> FormState:
    """Return the form for a new trigger, with a field of the event for each field of the input."""
    names = [part.name for part in json_schema.parts(schema)]
    mapping = {name: f"{{{{data.{name}}}}}" for name in names}
    sample = {**SAMPLE, "data": dict.fromkeys(names, "…")}
    suggested = {"mapping": as_typed("json", mapping), "sample": as_typed("json", sample)}
    return FormState(agent=agent, texts={**EMPTY, **suggested}, options=OPTIONS)


def fill(definition: EventDefinition, schema: Mapping[str, Any]) -> FormState:
    """Return the form for a trigger that is there."""
    numbers = {name: getattr(definition, name) for name in NUMBERS}
    texts = {
        **{name: getattr(definition, name) for name in TEXTS},
        **{name: "" if number is None else str(number) for name, number in numbers.items()},
        "mapping": as_typed("json", definition.mapping),
        definition.source: definition.location,
    }
    return FormState(agent=definition.agent, texts=texts, options=OPTIONS)


def read(
    agent: str, schema: Mapping[str, Any], posted: QueryDict, definition: EventDefinition | None
) -> FormState:
    """Return the form as sent, with its unreadable fields, and the trigger that it makes."""
    names = (*TEXTS, *SOURCES, *NUMBERS, *JSON)
    texts = {name: form_text(posted, name).strip() for name in names}
    form = FormState(agent=agent, texts=texts, options=OPTIONS)
    values: dict[str, Any] = {}
    for name in (*NUMBERS, *JSON):
        kind = "json" if name in JSON else "integer"
        try:
            values[name] = value_of(kind, texts[name]) if texts[name] else None
        except InvalidValue as exc:
            form.problems[name] = str(exc)
    form.sample = values.pop("sample", None)
    if values.get("mapping", 0) is None:
        values["mapping"] = {}
    form.sent = {"agent": agent, **{name: texts[name] for name in (*TEXTS, *SOURCES)}, **values}
    return form


def mark(form: FormState, exc: RequestError, posted: QueryDict) -> None:
    """Write a refusal to its fields, if it names some."""
    for problem in [exc, *exc.others] if isinstance(exc, InvalidInput) else [exc]:
        field = problem.field or ""
        name = field.partition(".")[0].partition("[")[0]
        if name in form.texts:
            inside = field.removeprefix(name).lstrip(".")
            text = f"{inside}: {problem.detail}" if inside else problem.detail
            before = form.problems.get(name)
            form.problems[name] = f"{before}; {text}" if before else text

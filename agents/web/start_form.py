"""Builds the form that starts a run from the agent's input schema, and reads the typed values back to JSON.

Text, whole numbers, numbers, yes or no, choices, mail addresses and dates have fields of their own; other values are
typed as JSON. Empty fields are omitted, so defaults apply; the schema reports missing required fields.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agents.sdk import inputs
from runtime.core.schemas.json_schema import Property, example_of, parts
from runtime.errors import InvalidInput
from runtime.web.requests import form_text
from runtime.web.schema_fields import InvalidValue, as_typed, choices_of, kind_of, value_of

WHOLE = "input"  # the only field of a schema that is not an object's


_PLAIN = {
    "string": "",
    "integer": "whole number",
    "boolean": "yes or no",
    "email": "e-mail address",
    "array": "list, as JSON",
    "object": "JSON",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StartField:
    """One field of the form. `choices` are pairs of value and label."""

    id: str
    name: str
    label: str
    kind: str
    required: bool
    help: str
    raw: str
    error: str
    choices: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartForm:
    """The form as submitted. `problems` are by field name; WHOLE has those that belong to no field."""

    schema: dict[str, Any]
    raw: Mapping[str, str]
    problems: Mapping[str, str]

    @property
    def fields(self) -> tuple[StartField, ...]:
        """Return the fields of the schema, with the submitted texts and their problems."""
        properties = parts(self.schema)
        if not properties:
            return (self._json_field(),) if self.schema.get("type") != "object" else ()
        return tuple(self._field(f"f{index}", prop) for index, prop in enumerate(properties))

    @property
    def problem(self) -> str:
        """Return the problem that belongs to no field."""
        names = {prop.name for prop in parts(self.schema)}
        if not names and self.schema.get("type") != "object":
            return ""
        return next((text for name, text in self.problems.items() if name not in names), "")

    def _field(self, id: str, prop: Property) -> StartField:
        first = "" if prop.default is None else as_typed(kind_of(prop.rule), prop.default)
        return StartField(
            id=id,
            name=_prefix_name(prop.name),
            label=prop.title,
            kind=kind_of(prop.rule),
            required=prop.required,
            help=" · ".join(
                text for text in (prop.description, *_plain(prop), *_example(prop)) if text
            ),
            raw=self.raw.get(prop.name, first),
            error=self.problems.get(prop.name, ""),
            choices=choices_of(prop.rule),
        )

    def _json_field(self) -> StartField:
        return StartField(
            id="f0",
            name=_prefix_name(WHOLE),
            label="Input",
            kind="json",
            required=True,
            help="JSON",
            raw=self.raw.get(WHOLE, ""),
            error=self.problems.get(WHOLE, ""),
            choices=(),
        )


def _plain(prop: Property) -> list[str]:
    """Return the facts of a type as people say them, without that a text is a text."""
    return [_PLAIN.get(fact, fact) for fact in prop.type.split(" · ")]


def _example(prop: Property) -> list[str]:
    example = example_of(prop.rule)
    return [f"for example {example}"] if example else []


def empty(schema: dict[str, Any]) -> StartForm:
    """Return an empty form."""
    return StartForm(schema=schema, raw={}, problems={})


def read(schema: dict[str, Any], form_values: Mapping[str, str]) -> tuple[StartForm, Any]:
    """Return the form as submitted, with the problems of its fields, and the value that it makes."""
    properties = parts(schema)
    names = [prop.name for prop in properties] or [WHOLE]
    raw = {name: form_text(form_values, _prefix_name(name)) for name in names}
    problems: dict[str, str] = {}
    value: Any = {}
    for prop in properties:
        try:
            if raw[prop.name].strip():
                value[prop.name] = value_of(kind_of(prop.rule), raw[prop.name])
        except InvalidValue as exc:
            problems[prop.name] = str(exc)
    if not properties and schema.get("type") != "object":
        try:
            value = value_of("json", raw[WHOLE])
        except InvalidValue as exc:
            problems[WHOLE] = str(exc)
    for problem in inputs.problems(schema, value):
        name = field_of(problem, names)
        # An unreadable field is missing from the value. The reader must see why it is unreadable, not that it is
        # missing.
        problems.setdefault(name, problem.detail)
    return StartForm(schema=schema, raw=raw, problems=problems), value


def field_of(problem: InvalidInput, names: list[str]) -> str:
    """Return the form's field that a problem belongs to."""
    path = problem.field.removeprefix(f"{WHOLE}.")
    inside = (name for name in names if path == name or path.startswith((f"{name}.", f"{name}[")))
    return next(inside, WHOLE)


def _prefix_name(name: str) -> str:
    """Return the name of a field in the submitted form. A prefix separates it from the form's own fields."""
    return f"in.{name}"

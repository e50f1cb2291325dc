"""The form of an answer to a question: its fields from the schema of the answer, and the value that they make.

An answer that is an object has the fields of its properties. Any other is one field.
"""

from collections.abc import Mapping
from typing import Any, Final

from runtime.core.values import json_schema
from runtime.errors import InvalidInput
from runtime.web import schema_form
from runtime.web.schema_form import Field

_ANSWER: Final = "answer"  # the one field
_RESULT = "result"  # as `decide` names the value


def fill_in(
    schema: Any, form_values: Mapping[str, str], wrong: dict[str, str]
) -> tuple[tuple[Field, ...], list[str]]:
    """Return the fields with the submitted texts and their problems, and the problems of no field."""
    return schema_form.fill_in(_fields(schema, with_defaults=not form_values), form_values, wrong)


def read(schema: Any, form_values: Mapping[str, str]) -> tuple[Any, dict[str, str]]:
    """Return the value that the form makes, and the problems of its fields, by path."""
    values, wrong = schema_form.read(_fields(schema), form_values)
    form_schema = _form_schema(schema)
    for path, detail in schema_form.problems(form_schema, values).items():
        wrong.setdefault(path, detail)
    if form_schema is schema:
        return values, wrong
    return values.get(_ANSWER), wrong


def problem(schema: Any, refusal: InvalidInput) -> dict[str, str]:
    """Return a problem of the value that `decide` names, by the path of its field."""
    path = refusal.field.removeprefix(_RESULT).removeprefix(".")
    if _form_schema(schema) is not schema:
        path = f"{_ANSWER}.{path}" if path else _ANSWER
    return {path: refusal.detail}


def _fields(schema: Any, *, with_defaults: bool = False) -> tuple[Field, ...]:
    form_schema = _form_schema(schema)
    values = _nulls(schema_form.fields(form_schema, {}))
    if with_defaults:
        properties = json_schema.parts(form_schema)
        values |= {prop.name: prop.default for prop in properties if prop.default is not None}
    return schema_form.fields(form_schema, values)


def _form_schema(schema: Any) -> dict[str, Any]:
    """Return the schema itself if it is that of an object with properties, else that of an object with one field."""
    if isinstance(schema, dict) and json_schema.parts(schema):
        return schema
    rule = {name: value for name, value in (schema or {}).items() if name != "$defs"}
    return {
        "type": "object",
        "properties": {_ANSWER: {**rule, "title": "Answer"}},
        "required": [_ANSWER],
        "$defs": (schema or {}).get("$defs", {}),
    }


def _nulls(fields: tuple[Field, ...]) -> dict[str, Any]:
    """Return null for each required property that may be null: left empty, it is null and not missing."""
    nulls = dict[str, Any]()
    for field in fields:
        name = field.path.rpartition(".")[2]
        if field.required and field.nullable:
            nulls[name] = None
        elif field.required and field.kind == "object" and (inside := _nulls(field.inside)):
            nulls[name] = inside
    return nulls

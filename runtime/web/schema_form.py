"""A form that changes a JSON object, built from its schema and its present value.

Text, numbers, choices, dates and times have fields of their own. Lists of these have a row for each item and some empty
ones, objects have the fields of their properties. All other values are JSON. A field that was not touched keeps its
value exactly, and an empty one is left out, or null if it may be. The kinds of fields, and the reading of a typed text,
are those of all forms.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from runtime.core.values import json_schema
from runtime.core.values.json_values import refuse_constant
from runtime.web.requests import read_text

MAX_LINE_CHARACTERS = 300  # a longer text has several lines

_NUMBERS = {"integer": r"-?\d{1,18}", "number": r"-?\d{1,18}(\.\d{1,18})?([eE][-+]?\d{1,2})?"}
# Names of types in words for people; that a value is a text, a number or a date goes without saying.
_PLAIN_WORDS = {
    "string": "",
    "integer": "whole number",
    "number": "",
    "date": "",
    "email": "e-mail address",
    "array": "list, as JSON",
    "object": "JSON",
}
_WHERE = "value"
_MORE_ROWS = 3
_MAX_ROWS = 30
_MAX_DEPTH = 3
_ABSENT: Final = object()
_TYPES: dict[str, type | tuple[type, ...]] = {
    "integer": int,
    "number": (int, float),
    "boolean": bool,
}
_MOMENT = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d{1,3})?)?)([Zz]|[+-]\d\d:\d\d)", re.ASCII
)


class InvalidValue(Exception):
    """The submitted text is not a value of the field's kind."""


def derive_kind(rule: Mapping[str, Any]) -> str:
    """Return the kind: `choice`, `boolean`, `integer`, `number`, `email`, `date`, `text`, `long` or `json`."""
    kind = rule.get("type")
    if isinstance(rule.get("enum"), list):
        return "choice"
    if kind in ("boolean", "integer", "number"):
        return str(kind)
    if kind != "string":
        return "json"
    if rule.get("format") in ("email", "date"):
        return str(rule["format"])
    limit = rule.get("maxLength")
    return (
        "long"
        if "pattern" not in rule and (limit is None or limit > MAX_LINE_CHARACTERS)
        else "text"
    )


def list_choices(rule: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the choices as pairs of the sent text and the label; none for a field that is typed."""
    match derive_kind(rule):
        case "choice":
            return tuple(
                (json.dumps(choice), json_schema.format_value(choice)) for choice in rule["enum"]
            )
        case "boolean":
            return (("true", "yes"), ("false", "no"))
        case _:
            return ()


def as_typed(kind: str, value: Any) -> str:
    """Return the text of a value in a field of this kind."""
    if isinstance(value, str) and kind not in ("choice", "json"):
        return value
    return json.dumps(value, ensure_ascii=False, indent=2) if kind == "json" else json.dumps(value)


def read_value(kind: str, raw: str) -> Any:
    """Read the value of one field. Raise InvalidValue."""
    match kind:
        case "integer" | "number":
            text = raw.strip()
            if not re.fullmatch(_NUMBERS[kind], text, re.ASCII):
                raise InvalidValue(f"must be a {'whole ' if kind == 'integer' else ''}number")
            return int(text) if kind == "integer" else _parse_number(text)
        case "choice" | "boolean" | "json":
            try:
                return json.loads(raw, parse_constant=refuse_constant)
            except (ValueError, RecursionError) as exc:
                raise InvalidValue("must be JSON" if kind == "json" else "is not a choice") from exc
        case "long":
            return raw
        case _:
            return raw.strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field. `path` is dotted; `inside` are the fields of an object or the rows of a list."""

    path: str
    label: str
    kind: str
    required: bool
    nullable: bool
    help: str
    value: Any
    choices: tuple[tuple[str, str], ...]
    inside: tuple["Field", ...]
    raw: str = ""
    zone: str = ""
    error: str = ""

    @property
    def id(self) -> str:
        """The id and the name of the field in the form."""
        return f"in.{self.path}"

    @property
    def zone_id(self) -> str:
        """The id and the name of the field for the zone."""
        return f"zone.{self.path}"


def build_fields(schema: Mapping[str, Any], args: Mapping[str, Any]) -> tuple[Field, ...]:
    """Return the fields of an object with this value."""
    return _build_object_fields(schema, args, "", 0)


def read(
    form_fields: tuple[Field, ...], form_values: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the object that the form makes, and the problems of single fields, by path."""
    wrong: dict[str, str] = {}
    values = ((field.path, _read(field, form_values, wrong)) for field in form_fields)
    return {path: value for path, value in values if value is not _ABSENT}, wrong


def list_problems(schema: Mapping[str, Any], value: Any) -> dict[str, str]:
    """Return the limits of the schema that the object breaks, by path."""
    broken = json_schema.list_problems(schema, value, _WHERE)
    return {
        problem.field.removeprefix(_WHERE).removeprefix("."): problem.detail for problem in broken
    }


def fill_in(
    form_fields: tuple[Field, ...], form_values: Mapping[str, str], wrong: dict[str, str]
) -> tuple[tuple[Field, ...], list[str]]:
    """Return the fields with the submitted texts and their problems, and the problems of no field."""
    unplaced = dict(wrong)
    filled = tuple(_fill_field(field, form_values, unplaced) for field in form_fields)
    return filled, [f"{path} {detail}" if path else detail for path, detail in unplaced.items()]


def describe_property(prop: json_schema.Property) -> str:
    """Return the description of a property, and the limits of its value as far as its field does not show them."""
    facts = () if list_choices(prop.rule) else prop.type.split(" · ")
    words = (_PLAIN_WORDS.get(fact, fact) for fact in facts)
    return " · ".join(filter(None, (prop.description, *words)))


# Fields


def _build_object_fields(
    schema: Mapping[str, Any], args: Mapping[str, Any], prefix: str, depth: int
) -> tuple[Field, ...]:
    rules = schema.get("properties", {})
    definitions = {"$defs": schema.get("$defs", {})}
    inside = []
    for prop in json_schema.list_properties(schema):
        rule = rules[prop.name]
        types, choices = rule.get("type"), rule.get("anyOf") or rule.get("oneOf") or []
        may_be_null = isinstance(types, list) and "null" in types
        field = _build_field(
            f"{prefix}{prop.name}",
            {**prop.rule, **definitions},
            args.get(prop.name, _ABSENT),
            label=prop.title,
            required=prop.required,
            nullable=may_be_null or {"type": "null"} in choices,
            help=describe_property(prop),
            depth=depth,
        )
        inside.append(field)
    return tuple(inside)


def _build_field(
    path: str,
    rule: dict[str, Any],
    value: Any,
    *,
    label: str,
    required: bool,
    nullable: bool,
    help: str,
    depth: int,
) -> Field:
    types = rule.get("type")
    if isinstance(types, list) and len(real := [name for name in types if name != "null"]) == 1:
        rule = {**rule, "type": real[0]}
    kind = _derive_field_kind(rule, value, depth)
    inside: tuple[Field, ...] = ()
    if kind == "object":
        inside = _build_object_fields(
            rule, value if isinstance(value, dict) else {}, f"{path}.", depth + 1
        )
    elif kind == "list":
        items = value if isinstance(value, list) else []
        inside = tuple(
            _build_field(
                f"{path}.{number}",
                rule["items"],
                items[number] if number < len(items) else _ABSENT,
                label=f"{label} {number + 1}",
                required=False,
                nullable=False,
                help="",
                depth=depth + 1,
            )
            for number in range(len(items) + _MORE_ROWS)
        )
    match = _MOMENT.fullmatch(value) if kind == "moment" and isinstance(value, str) else None
    return Field(
        path=path,
        label=label,
        kind=kind,
        required=required,
        nullable=nullable,
        help=help,
        value=value,
        choices=list_choices(rule) if kind in ("choice", "boolean") else (),
        inside=inside,
        raw=_format_raw(kind, value),
        zone=match[2] if match else "Z",
    )


def _derive_field_kind(rule: Mapping[str, Any], value: Any, depth: int) -> str:
    """Return the kind of a field that can show this value without loss; `json` shows every value."""
    kind, empty = derive_kind(rule), value is _ABSENT or value is None
    is_moment = isinstance(value, str) and _MOMENT.fullmatch(value)
    if rule.get("format") == "date-time" and kind in ("text", "long") and (empty or is_moment):
        return "moment"
    if kind == "json":
        return _derive_container_kind(rule, value, depth, empty=empty)
    if empty:
        return kind
    match kind:
        case "choice":
            # JSON tells 1 from 1.0 and true, which Python compares as equal.
            equal = (type(value) is type(choice) and value == choice for choice in rule["enum"])
            return "choice" if any(equal) else "json"
        case "integer" | "number" | "boolean":
            is_flag = isinstance(value, bool)
            fits = isinstance(value, _TYPES[kind]) and is_flag is (kind == "boolean")
            return kind if fits else "json"
        case _ if not isinstance(value, str):
            return "json"
        case "long":
            return "long"
        case _:
            return "long" if "\n" in value or value != value.strip() else kind


def _derive_container_kind(rule: Mapping[str, Any], value: Any, depth: int, *, empty: bool) -> str:
    if depth >= _MAX_DEPTH:
        return "json"
    items = rule.get("items")
    if rule.get("type") == "array" and isinstance(items, dict) and derive_kind(items) != "json":
        if empty:
            return "list"
        few = isinstance(value, list) and len(value) <= _MAX_ROWS
        return (
            "list"
            if few and all(_derive_field_kind(items, item, 0) != "json" for item in value)
            else "json"
        )
    if rule.get("type") == "object" and isinstance(rule.get("properties"), dict):
        has_fields = empty or (
            isinstance(value, dict) and value.keys() <= rule["properties"].keys()
        )
        return "object" if has_fields else "json"
    return "json"


# Texts and values


def _format_raw(kind: str, value: Any) -> str:
    if value is _ABSENT or (value is None and kind != "json") or kind in ("object", "list"):
        return ""
    if kind == "moment":
        match = _MOMENT.fullmatch(value)
        return match[1] if match else ""
    return as_typed(kind, value)


def _parse_number(text: str) -> float | int:
    number = float(text)
    if not math.isfinite(number):
        raise InvalidValue("must be a number")
    return int(text) if re.fullmatch(_NUMBERS["integer"], text) else number


def _read(field: Field, form_values: Mapping[str, str], wrong: dict[str, str]) -> Any:
    """Return the value of a field, _ABSENT if it is left out."""
    if field.inside:
        inner_values = {
            inner.path.rpartition(".")[2]: _read(inner, form_values, wrong)
            for inner in field.inside
        }
        values = {name: value for name, value in inner_values.items() if value is not _ABSENT}
        if not values and (field.value is _ABSENT or field.value is None):
            return field.value
        return list(values.values()) if field.kind == "list" else values
    raw, zone = (
        read_text(form_values, field.id),
        read_text(form_values, field.zone_id).strip(),
    )
    same_zone = field.kind != "moment" or zone == field.zone
    if field.id not in form_values or (raw == field.raw.replace("\r\n", "\n") and same_zone):
        return field.value
    if not raw.strip() and not (raw and field.kind in ("text", "long")):
        if field.required and field.kind in ("text", "long") and not field.nullable:
            return ""
        return None if field.nullable and field.value is not _ABSENT else _ABSENT
    try:
        if field.kind == "moment":
            return _parse_moment(raw.strip(), zone)
        return raw if field.kind == "text" else read_value(field.kind, raw)
    except InvalidValue as exc:
        wrong[field.path] = str(exc)
        return field.value


def _parse_moment(local: str, zone: str) -> str:
    """Return a time with its offset. Raise InvalidValue."""
    try:
        at = datetime.fromisoformat(local)
        if at.tzinfo is not None:
            raise InvalidValue("must be a local time, with its zone in the other field")
        local = local if local.count(":") > 1 else f"{local}:00"
        if _MOMENT.fullmatch(f"{local}{zone}"):
            return f"{local}{zone}"
        offset = at.replace(tzinfo=ZoneInfo(zone)).isoformat()[-6:]
    except (ValueError, OSError, ZoneInfoNotFoundError) as exc:
        raise InvalidValue(
            "must be a date, a time and a zone, such as +02:00 or Europe/Berlin"
        ) from exc
    return f"{local}{offset}"


def _fill_field(field: Field, form_values: Mapping[str, str], unplaced: dict[str, str]) -> Field:
    inside = tuple(_fill_field(inner, form_values, unplaced) for inner in field.inside)
    mine = [path for path in unplaced if path == field.path or path.startswith(f"{field.path}.")]
    errors = [*filter(None, [field.error]), *map(unplaced.pop, mine)]
    return replace(
        field,
        inside=inside,
        error="; ".join(errors),
        raw=read_text(form_values, field.id) if field.id in form_values else field.raw,
        zone=read_text(form_values, field.zone_id) if field.zone_id in form_values else field.zone,
    )

"""The fields of forms built from JSON Schemas: the kind of a field, its text, and the value of a typed text."""

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from runtime.core.schemas.json_schema import brief

MAX_LINE_CHARACTERS = 300  # a longer text has several lines

_NUMBERS = {"integer": r"-?\d{1,18}", "number": r"-?\d{1,18}(\.\d{1,18})?([eE][-+]?\d{1,2})?"}


class InvalidValue(Exception):
    """The submitted text is not a value of the field's kind."""


def kind_of(rule: Mapping[str, Any]) -> str:
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


def choices_of(rule: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the choices as pairs of the sent text and the label; none for a field that is typed."""
    match kind_of(rule):
        case "choice":
            return tuple((json.dumps(choice), brief(choice)) for choice in rule["enum"])
        case "boolean":
            return (("true", "yes"), ("false", "no"))
        case _:
            return ()


def as_typed(kind: str, value: Any) -> str:
    """Return the text of a value in a field of this kind."""
    if isinstance(value, str) and kind not in ("choice", "json"):
        return value
    return json.dumps(value, ensure_ascii=False) if kind == "json" else json.dumps(value)


def value_of(kind: str, raw: str) -> Any:
    """Read the value of one field. Raise InvalidValue."""
    match kind:
        case "integer" | "number":
            text = raw.strip()
            if not re.fullmatch(_NUMBERS[kind], text, re.ASCII):
                raise InvalidValue(f"must be a {'whole ' if kind == 'integer' else ''}number")
            return int(text) if kind == "integer" else _number(text)
        case "choice" | "boolean" | "json":
            try:
                return json.loads(raw, parse_constant=_refuse)
            except (ValueError, RecursionError) as exc:
                raise InvalidValue("must be JSON" if kind == "json" else "is not a choice") from exc
        case "long":
            return raw
        case _:
            return raw.strip()


def _refuse(constant: str) -> None:
    """Refuse NaN and Infinity, which Python reads but JSON does not have."""
    raise ValueError(constant)


def _number(text: str) -> float | int:
    number = float(text)
    if not math.isfinite(number):
        raise InvalidValue("must be a number")
    return int(text) if re.fullmatch(_NUMBERS["integer"], text) else number

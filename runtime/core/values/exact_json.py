"""JSON from outside that must go back unchanged: its text is kept, and no number passes through a float.

Two numbers are equal if their decimals are, in any notation. `readable` makes a value that the engine accepts:
a number that a float cannot hold becomes the text of its digits, a character that no text may have its code point.
"""

import hashlib
import json
import math
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from runtime.core.values.errors import NotJson
from runtime.core.values.json_values import require_json
from runtime.core.values.limits import MAX_INTEGER, escape_text

_SPACE = re.compile(r"[ \t\n\r]*")
_DIGITS = 17  # an integer with more is beyond MAX_INTEGER


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """A value as parsed, and its text as it was sent."""

    value: Any
    text: str


def read_object(body: bytes) -> dict[str, Submitted]:
    """Return the fields of a JSON object. Raise NotJson for anything else, and for a name that comes twice."""
    try:
        return _fields(body.decode())
    except RecursionError as exc:
        raise NotJson("body", "is nested too deeply") from exc
    except (ValueError, ArithmeticError) as exc:
        raise NotJson("body", f"is not a JSON object: {exc}") from exc


def read(text: str) -> Any:
    """Return the value of a text that `read_object` kept."""
    return _DECODER.decode(text)


def fingerprint(fields: dict[str, Submitted]) -> str:
    """Return a digest of the parsed fields: white space, the order of names and notations of numbers do not count."""
    values = {name: field.value for name, field in fields.items()}
    return hashlib.sha256(_plain_text(values).encode()).hexdigest()


def readable(value: Any, field: str = "value") -> Any:
    """Return the value as the engine accepts it and people read it. Raise NotJson if it is nested too deeply."""
    try:
        result = _readable(value)
    except RecursionError as exc:
        raise NotJson(field, "is nested too deeply") from exc
    require_json(result, field)
    return result


def _fields(text: str) -> dict[str, Submitted]:
    at = _after(text, _skip(text, 0), "{")
    fields: dict[str, Submitted] = {}
    if text[at : at + 1] == "}":
        return _end(text, at + 1, fields)
    while True:
        name, at = _DECODER.raw_decode(text, at)
        if not isinstance(name, str) or name in fields:
            raise ValueError("a name is no text, or comes twice")
        start = _after(text, _skip(text, at), ":")
        value, at = _DECODER.raw_decode(text, start)
        fields[name] = Submitted(value=value, text=text[start:at])
        at = _skip(text, at)
        if text[at : at + 1] == "}":
            return _end(text, at + 1, fields)
        at = _after(text, at, ",")


def _end(text: str, at: int, fields: dict[str, Submitted]) -> dict[str, Submitted]:
    if _skip(text, at) != len(text):
        raise ValueError("there is more after it")
    return fields


def _after(text: str, at: int, mark: str) -> int:
    if text[at : at + 1] != mark:
        raise ValueError(f"{mark} is missing at character {at}")
    return _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    assert match is not None  # it also matches nothing
    return match.end()


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a name comes twice in an object")
    return values


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no number")


_DECODER = json.JSONDecoder(
    parse_float=Decimal, parse_int=Decimal, parse_constant=_refuse, object_pairs_hook=_once
)


def _plain_text(value: Any) -> str:
    """Write a value so that equal ones have the same text."""
    match value:
        case dict():
            items = (f"{json.dumps(name)}:{_plain_text(value[name])}" for name in sorted(value))
            return f"{{{','.join(items)}}}"
        case list():
            return f"[{','.join(map(_plain_text, value))}]"
        case Decimal():
            sign, digits, exponent = value.as_tuple()
            text = "".join(map(str, digits)).lstrip("0")
            shorter = text.rstrip("0")
            power = int(exponent) + len(text) - len(shorter)
            return f"{'-' * sign}{shorter}e{power}" if shorter else "0"
        case _:
            return json.dumps(value)


def _readable(value: Any) -> Any:
    match value:
        case dict():
            result = {escape_text(name): _readable(item) for name, item in value.items()}
            if len(result) != len(value):
                raise NotJson("value", "two names look the same")
            return result
        case list():
            return [_readable(item) for item in value]
        case Decimal():
            return _readable_number(value)
        case str():
            return escape_text(value)
        case _:
            return value


def _readable_number(number: Decimal) -> Any:
    if number.adjusted() < _DIGITS and number == number.to_integral_value():
        integer = int(number)
        return integer if abs(integer) <= MAX_INTEGER else str(number)
    nearest = float(number)
    is_exact = math.isfinite(nearest) and Decimal(repr(nearest)) == number
    return nearest if is_exact else str(number)

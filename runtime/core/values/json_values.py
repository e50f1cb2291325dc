"""JSON values: their check, canonical form (RFC 8785) and digests, JSON from outside as its text, and files in JSON.

Two numbers are equal if their decimals are, in any notation. `make_readable` makes a value that the engine accepts:
a number that a float cannot hold becomes the text of its digits, a character that no text may have its code point.
"""

import base64
import binascii
import hashlib
import json
import math
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import rfc8785
from pydantic_core import from_json, to_json

from runtime.core.values.enums import EffectClass
from runtime.core.values.errors import NotJson
from runtime.core.values.limits import JSON_DEPTH, MAX_INTEGER
from runtime.core.values.texts import escape_text

ENCLOSED_DEPTH = JSON_DEPTH + 16  # of our own documents, around values from outside

_SURROGATE = re.compile("[\ud800-\udfff]")
_ENCODER = json.JSONEncoder(
    ensure_ascii=False, sort_keys=True, separators=(",", ":"), check_circular=False
)
_SPACE = re.compile(r"[ \t\n\r]*")
_DIGITS = 17  # an integer with more is beyond MAX_INTEGER


def require_json(value: Any, field: str = "value", *, depth: int = JSON_DEPTH) -> None:
    """Raise NotJson unless `value` survives JSON and canonical JSON unchanged.

    Accepted are dict, list, str, int, float, bool and None. Refused are keys that are not strings, NaN and
    infinities, and integers beyond 2**53 - 1 (RFC 7493). So are NUL and lone surrogates in text, and nesting deeper
    than `depth`. Our own documents around accepted values may have ENCLOSED_DEPTH levels.
    """
    if not _is_plain_json(value, depth, floats=True):
        _check(value, field, depth)


def measure_size(value: Any) -> int:
    """Return the size of a JSON value in bytes, written compactly."""
    return len(to_json(value))


def is_text(text: str) -> bool:
    """Say whether Postgres and JSON accept this text: it has no NUL and no lone surrogate."""
    return "\x00" not in text and (text.isascii() or not _SURROGATE.search(text))


def encode_canonical(value: Any) -> bytes:
    """Write a JSON value in its canonical form (RFC 8785). Raise ValueError for other values."""
    if _is_plain_json(value, ENCLOSED_DEPTH, floats=False):
        return _ENCODER.encode(value).encode()
    return rfc8785.dumps(value)


def copy_value(value: Any) -> Any:
    """Return the same JSON value, which shares no list or object with the other one."""
    return from_json(to_json(value)) if isinstance(value, dict | list) else value


def is_equal(value: Any, other: Any) -> bool:
    """Tell whether two JSON values are equal: 1 is 1.0, and neither is true or "1"."""
    try:
        return encode_canonical(value) == encode_canonical(other)
    except (NotJson, ValueError, RecursionError):
        return False


def _is_plain_json(value: Any, depth: int, *, floats: bool) -> bool:
    """Say whether a value is plain JSON, at most so deep. False may also mean unusual JSON.

    Without `floats`, Python's encoder writes it in canonical form: its keys are ASCII, so they sort as in UTF-16.
    """
    unchecked: list[tuple[Any, int]] = [([value], depth + 1)]
    while unchecked:
        values, levels = unchecked.pop()
        if type(values) is dict:
            for key in values:
                if type(key) is not str or not key.isascii() or "\x00" in key:
                    return False
            values = values.values()
        if not levels and values:
            return False
        for item in values:
            kind = type(item)
            if kind is str:
                if "\x00" in item or (not item.isascii() and _SURROGATE.search(item)):
                    return False
            elif kind is dict or kind is list:
                unchecked.append((item, levels - 1))
            elif kind is int:
                if not -MAX_INTEGER <= item <= MAX_INTEGER:
                    return False
            elif kind is float:
                if not (floats and math.isfinite(item)):
                    return False
            elif item is not None and kind is not bool:
                return False
    return True


def _check(value: Any, field: str, max_depth: int, depth: int = 0) -> None:
    if depth > max_depth:
        raise NotJson(field, f"nested deeper than {max_depth}")
    if value is None or isinstance(value, bool):
        return
    if isinstance(value, str):
        _check_text(value, field)
    elif isinstance(value, int):
        if abs(value) > MAX_INTEGER:
            raise NotJson(field, f"integer beyond {MAX_INTEGER}")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise NotJson(field, "not a finite number")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check(item, f"{field}[{index}]", max_depth, depth + 1)
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise NotJson(field, f"key {key!r} is not text")
            _check_text(key, field)
            _check(item, f"{field}.{key}", max_depth, depth + 1)
    else:
        raise NotJson(field, f"{type(value).__name__} is not a JSON type")


def _check_text(text: str, field: str) -> None:
    if "\x00" in text:
        raise NotJson(field, "contains a NUL character")
    if not text.isascii() and _SURROGATE.search(text):
        raise NotJson(field, "contains half of a surrogate pair")


def hash_value(value: Any) -> str:
    """Return the digest of a JSON value's canonical form, as `sha256:<hex>`. Raises NotJson."""
    if _is_plain_json(value, ENCLOSED_DEPTH, floats=False):
        text = _ENCODER.encode(value).encode()
    else:
        _check(value, "value", ENCLOSED_DEPTH)
        text = rfc8785.dumps(value)
    return "sha256:" + hashlib.sha256(text).hexdigest()


def hash_action(
    *, tool: str, schema: str, args: Any, path: tuple[str, ...], effect: EffectClass
) -> str:
    """Return the digest of an approved action: the tool, its schema, the arguments and the path of agents."""
    return hash_value(
        {"tool": tool, "schema": schema, "args": args, "path": list(path), "effect": str(effect)}
    )


def read_json(text: str | bytes, name: str) -> Any:
    """Read a document, which an error calls `name`. Raise NotJson, or ValueError or RecursionError if it is not JSON.

    Integers beyond MAX_INTEGER and numbers beyond a float become text; NUL and lone surrogates are escaped.
    """
    value = _escape(json.loads(text, parse_int=_read_integer, parse_float=_read_float))
    require_json(value, name)
    return value


def _read_integer(digits: str) -> int | str:
    is_short = len(digits) <= len(str(-MAX_INTEGER))
    return int(digits) if is_short and abs(int(digits)) <= MAX_INTEGER else digits


def _read_float(digits: str) -> float | str:
    value = float(digits)
    return value if math.isfinite(value) else digits


def _escape(value: Any) -> Any:
    match value:
        case str():
            return escape_text(value)
        case list():
            return [_escape(item) for item in value]
        case dict():
            return {escape_text(name): _escape(item) for name, item in value.items()}
        case _:
            return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """A value as parsed, and its text as it was sent."""

    value: Any
    text: str


def read_object(body: bytes) -> dict[str, Submitted]:
    """Return the fields of a JSON object. Raise NotJson for anything else, and for a name that comes twice."""
    fields: dict[str, Submitted] = {}
    try:
        text = body.decode()
        at = _skip_mark(text, _skip(text, 0), "{")
        is_open = text[at : at + 1] != "}"
        while is_open:
            name, at = _DECODER.raw_decode(text, at)
            if not isinstance(name, str) or name in fields:
                raise ValueError("a name is no text, or comes twice")
            start = _skip_mark(text, _skip(text, at), ":")
            value, at = _DECODER.raw_decode(text, start)
            fields[name] = Submitted(value=value, text=text[start:at])
            at = _skip(text, at)
            is_open = text[at : at + 1] != "}"
            if is_open:
                at = _skip_mark(text, at, ",")
        if _skip(text, at + 1) != len(text):
            raise ValueError("there is more after it")
        return fields
    except RecursionError as exc:
        raise NotJson("body", "is nested too deeply") from exc
    except ArithmeticError as exc:
        raise NotJson("body", "has a number with too large an exponent") from exc
    except ValueError as exc:
        raise NotJson("body", f"is not a JSON object: {exc}") from exc


def read(text: str) -> Any:
    """Return the value of a text that `read_object` kept."""
    return _DECODER.decode(text)


def hash_fields(fields: dict[str, Submitted]) -> str:
    """Return a digest of the parsed fields: white space, the order of names and notations of numbers do not count."""
    values = {name: field.value for name, field in fields.items()}
    return hashlib.sha256(_write_comparable_text(values).encode()).hexdigest()


def make_readable(value: Any, field: str = "value") -> Any:
    """Return the value as the engine accepts it and people read it. Raise NotJson if it is nested too deeply."""
    try:
        result = _make_readable(value)
    except RecursionError as exc:
        raise NotJson(field, "is nested too deeply") from exc
    require_json(result, field)
    return result


def _skip_mark(text: str, at: int, mark: str) -> int:
    if text[at : at + 1] != mark:
        raise ValueError(f"{mark} is missing at character {at}")
    return _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    assert match is not None  # it also matches nothing
    return match.end()


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a name comes twice in an object")
    return values


def refuse_constant(constant: str) -> Any:
    """Raise ValueError for NaN or Infinity, which Python reads but JSON does not have."""
    raise ValueError(f"{constant} is no number")


_DECODER = json.JSONDecoder(
    parse_float=Decimal,
    parse_int=Decimal,
    parse_constant=refuse_constant,
    object_pairs_hook=_refuse_duplicates,
)


def _write_comparable_text(value: Any) -> str:
    """Write a value so that equal ones have the same text."""
    match value:
        case dict():
            items = (
                f"{json.dumps(name)}:{_write_comparable_text(value[name])}"
                for name in sorted(value)
            )
            return f"{{{','.join(items)}}}"
        case list():
            return f"[{','.join(map(_write_comparable_text, value))}]"
        case Decimal():
            sign, digits, exponent = value.as_tuple()
            text = "".join(map(str, digits)).lstrip("0")
            shorter = text.rstrip("0")
            power = int(exponent) + len(text) - len(shorter)
            return f"{'-' * sign}{shorter}e{power}" if shorter else "0"
        case _:
            return json.dumps(value)


def _make_readable(value: Any) -> Any:
    match value:
        case dict():
            result = {escape_text(name): _make_readable(item) for name, item in value.items()}
            if len(result) != len(value):
                raise NotJson("value", "two names look the same")
            return result
        case list():
            return [_make_readable(item) for item in value]
        case Decimal():
            if value.adjusted() < _DIGITS and value == value.to_integral_value():
                integer = int(value)
                return integer if abs(integer) <= MAX_INTEGER else str(value)
            nearest = float(value)
            is_exact = math.isfinite(nearest) and Decimal(repr(nearest)) == value
            return nearest if is_exact else str(value)
        case str():
            return escape_text(value)
        case _:
            return value


# Files: a picture or a PDF that a tool takes or returns, with its type and its bytes in base64. A page shows it from a
# route of its own, so only types that start no program in a browser are files: no SVG, no HTML. The bytes must begin as
# their type does, or a page of HTML could pass for a picture.


_SIGNATURES = {
    "image/png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/gif": re.compile(rb"GIF8[79]a"),
    "image/webp": re.compile(rb"RIFF.{4}WEBP", re.DOTALL),
    "application/pdf": re.compile(rb"%PDF-"),
}
MEDIA_TYPES = tuple(_SIGNATURES)
MAX_FILE = 3 * 1024 * 1024  # bytes; in base64 they fit a result
_FIELDS = {"media_type", "base64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FileValue:
    """A file whose bytes begin as its type does."""

    media_type: str
    data: bytes

    @property
    def is_picture(self) -> bool:
        """Whether a page shows it, and a model may look at it."""
        return self.media_type.startswith("image/")

    @property
    def suffix(self) -> str:
        """The end of its name."""
        return self.media_type.partition("/")[2]


def is_file(value: Any) -> bool:
    """Tell whether a JSON value has the form of a file. Its bytes may still be other ones."""
    return (
        isinstance(value, dict)
        and value.keys() == _FIELDS
        and value["media_type"] in MEDIA_TYPES
        and isinstance(value["base64"], str)
    )


def decode_file(value: Any) -> FileValue | None:
    """Return the file of a JSON value; None if it is none, is too large, or has bytes of another type."""
    if not is_file(value) or len(value["base64"]) > 4 * MAX_FILE // 3 + 4:
        return None
    try:
        data = base64.b64decode(value["base64"], validate=True)
    except (binascii.Error, ValueError):
        return None
    is_genuine = _SIGNATURES[value["media_type"]].match(data) and len(data) <= MAX_FILE
    return FileValue(media_type=value["media_type"], data=data) if is_genuine else None


def file_value(media_type: str, data: bytes) -> dict[str, str]:
    """Return the JSON value of a file. Raises ValueError if a page would not show it."""
    value = {"media_type": media_type, "base64": base64.b64encode(data).decode()}
    if decode_file(value) is None:
        raise ValueError(
            f"no file of at most {MAX_FILE} bytes that begins as {media_type} does; "
            f"types are {', '.join(MEDIA_TYPES)}"
        )
    return value

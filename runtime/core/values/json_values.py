"""JSON values: their check, their canonical form (RFC 8785), digests of it, and JSON that other systems wrote."""

import hashlib
import json
import math
import re
from collections.abc import Collection
from typing import Any

import rfc8785

from runtime.core.values.enums import EffectClass
from runtime.core.values.errors import NotJson
from runtime.core.values.limits import JSON_DEPTH, MAX_INTEGER, escape_text

ENCLOSED_DEPTH = JSON_DEPTH + 16  # of our own documents, around values from outside

_SURROGATE = re.compile("[\ud800-\udfff]")
_ENCODER = json.JSONEncoder(
    ensure_ascii=False, sort_keys=True, separators=(",", ":"), check_circular=False
)


def require_json(value: Any, field: str = "value", *, depth: int = JSON_DEPTH) -> None:
    """Raise NotJson unless `value` survives JSON and canonical JSON unchanged.

    Accepted are dict, list, str, int, float, bool and None. Refused are keys that are not strings, NaN and
    infinities, and integers beyond 2**53 - 1 (RFC 7493). So are NUL and lone surrogates in text, and nesting deeper
    than `depth`. Our own documents around accepted values may have ENCLOSED_DEPTH levels.
    """
    if not _passes([value], depth + 1, floats=True):
        _check(value, field, depth)


def is_text(text: str) -> bool:
    """Say whether Postgres and JSON accept this text: it has no NUL and no lone surrogate."""
    return "\x00" not in text and (text.isascii() or not _SURROGATE.search(text))


def canonical(value: Any) -> bytes:
    """Write a JSON value in its canonical form (RFC 8785). Raise ValueError for other values."""
    if _passes([value], ENCLOSED_DEPTH + 1, floats=False):
        return _ENCODER.encode(value).encode()
    return rfc8785.dumps(value)


def is_equal(value: Any, other: Any) -> bool:
    """Tell whether two JSON values are equal: 1 is 1.0, and neither is true or "1"."""
    try:
        return canonical(value) == canonical(other)
    except (NotJson, ValueError, RecursionError):
        return False


def _passes(values: Collection[Any], levels: int, *, floats: bool) -> bool:
    """Say whether a list or an object is plain JSON, at most `left` levels deep. False may also mean unusual JSON.

    Without `floats`, Python's encoder writes it in canonical form: its keys are ASCII, so they sort as in UTF-16.
    """
    if isinstance(values, dict):
        for key in values:
            if type(key) is not str or not key.isascii() or "\x00" in key:
                return False
        values = values.values()
    if not levels and values:
        return False
    for value in values:
        kind = type(value)
        if kind is str:
            if "\x00" in value or (not value.isascii() and _SURROGATE.search(value)):
                return False
        elif kind is dict or kind is list:
            if not _passes(value, levels - 1, floats=floats):
                return False
        elif kind is int:
            if not -MAX_INTEGER <= value <= MAX_INTEGER:
                return False
        elif kind is float:
            if not (floats and math.isfinite(value)):
                return False
        elif value is not None and kind is not bool:
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


def sha256_of(value: Any) -> str:
    """Return the digest of a JSON value's canonical form, as `sha256:<hex>`. Raises NotJson."""
    if _passes([value], ENCLOSED_DEPTH + 1, floats=False):
        text = _ENCODER.encode(value).encode()
    else:
        _check(value, "value", ENCLOSED_DEPTH)
        text = rfc8785.dumps(value)
    return "sha256:" + hashlib.sha256(text).hexdigest()


def action_digest(
    *, tool: str, schema: str, args: Any, path: tuple[str, ...], effect: EffectClass
) -> str:
    """Return the digest of an approved action: the tool, its schema, the arguments and the path of agents."""
    return sha256_of(
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

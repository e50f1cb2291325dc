"""Reads JSON that other systems wrote. What a journal cannot keep becomes text, so it does not cost the rest."""

import json
import math
from typing import Any

from runtime.core.digest import require_json
from runtime.core.limits import MAX_INTEGER, escape_text


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

"""Finds the unit of a number: in its schema, in its name, or in an argument of the same call."""

import re
from collections.abc import Mapping
from typing import Any

MAX_UNIT = 12  # characters; a longer text is not a unit

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?", re.ASCII)
_AMOUNTS = frozenset(
    {"amount", "balance", "cost", "fee", "price", "refund", "salary", "sum", "total", "value"}
)
_ENDINGS = {
    **{code: code.upper() for code in ("eur", "usd", "gbp", "chf", "jpy")},
    **{
        unit: unit
        for unit in ("cents", "seconds", "minutes", "hours", "days", "weeks", "months", "years")
    },
    "bytes": "bytes",
    "kb": "kB",
    "mb": "MB",
    "gb": "GB",
    "km": "km",
    "kg": "kg",
    "percent": "%",
    "euros": "euros",
    "dollars": "dollars",
}


def is_number(value: Any) -> bool:
    """Tell whether a JSON value is a number. True and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_amount(name: str, value: Any) -> bool:
    """Tell whether a value is a number, or a text with one, that its name calls an amount."""
    if is_number(value):
        return True
    words = frozenset(name.lower().split("_"))
    return isinstance(value, str) and bool(words & _AMOUNTS) and bool(_NUMBER.fullmatch(value))


def unit_of(name: str, rule: Any, args: Mapping[str, Any]) -> str:
    """Return the unit of a number, empty if none is named or the value is no number."""
    if not is_amount(name, args.get(name)):
        return ""
    words = name.lower().split("_")
    named = [rule.get("unit"), rule.get("x-unit")] if isinstance(rule, dict) else []
    beside = [args.get(f"{name}_currency"), args.get(f"{name}_unit")]
    if _AMOUNTS & frozenset(words):
        beside.append(args.get("currency"))
    found = (one for one in [*named, *beside] if isinstance(one, str) and 0 < len(one) <= MAX_UNIT)
    return next(found, _ENDINGS.get(words[-1], "") if len(words) > 1 else "")

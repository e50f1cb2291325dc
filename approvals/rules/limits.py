"""Compares the arguments of a call with the limits of an allowance. Pure.

Every argument has a limit of its own, and an argument without one does not match: a tool that gets another argument is
not covered. An argument that may have any value has the limit `any`.
"""

import math
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final

from runtime.core.values.json_values import same

Path = tuple[str, ...]

MAX_ARGUMENTS: Final = 50
_WRITTEN: Final = re.compile(r"-?[0-9]{1,30}(\.[0-9]{1,30})?")  # a number as text, such as "40.00"


class LimitRule(StrEnum):
    """How an argument is limited."""

    EQUALS = "equals"
    ONE_OF = "one_of"
    AT_MOST = "at_most"  # a number, or a number as text; not below 0, unless the limit is
    AT_LEAST = "at_least"
    BETWEEN = "between"  # two numbers, both inclusive
    ANY = "any"  # any value, or none


ORDERED: Final = frozenset({LimitRule.AT_MOST, LimitRule.AT_LEAST, LimitRule.BETWEEN})
_COUNTS: Final = {
    LimitRule.EQUALS: 1,
    LimitRule.AT_MOST: 1,
    LimitRule.AT_LEAST: 1,
    LimitRule.BETWEEN: 2,
    LimitRule.ANY: 0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentLimit:
    """The limit of the argument at `path`, which goes through nested objects. A list is one value."""

    path: Path
    rule: LimitRule
    values: tuple[Any, ...] = ()


def leaves(args: Any) -> dict[Path, Any]:
    """Return each argument by its path; an object with fields counts as its fields."""
    return dict(_leaves(args, ()))


def problem(limit: ArgumentLimit) -> str | None:
    """Describe the error in the values of a limit; None if there is none."""
    count = len(limit.values)
    wanted = _COUNTS.get(limit.rule)
    if wanted is None and not count:
        return "needs at least one value"
    if wanted is not None and count != wanted:
        return "takes no value" if wanted == 0 else f"needs {wanted} value{'s' * (wanted > 1)}"
    if limit.rule in ORDERED:
        numbers = [_number(value) for value in limit.values]
        if None in numbers:
            return "needs numbers"
        if len({isinstance(value, str) for value in limit.values}) > 1:
            return "needs two numbers, or two numbers as text"
        if limit.rule is LimitRule.BETWEEN and numbers != sorted(numbers, key=lambda one: one or 0):
            return "needs the lower number first"
    return None


def mismatch(limits: Collection[ArgumentLimit], args: Any) -> str | None:
    """Name the first argument that its limit does not cover, with the reason; None if all match."""
    if not isinstance(args, dict):
        return "the arguments are not an object"
    given, known = leaves(args), {limit.path: limit for limit in limits}
    for path, value in given.items():
        if path not in known:
            return f"{named(path)} has no limit"
        if not _allows(known[path], value):
            return f"{named(path)} is not within its limit"
    for path, limit in known.items():
        if path not in given and limit.rule is not LimitRule.ANY:
            return f"{named(path)} is missing"
    return None


def least(limit: ArgumentLimit) -> Any:
    """Return the lower end of AT_MOST: 0 unless it is negative, because -5,000 is no small refund."""
    (most,) = limit.values
    if (_number(most) or 0) < 0:
        return None
    return "0" if isinstance(most, str) else 0


def named(path: Path) -> str:
    """Return the name of an argument for people: `customer.id`."""
    return ".".join(path)


def _leaves(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, dict) and (value or not path):
        for name, inner in value.items():
            yield from _leaves(inner, (*path, str(name)))
    else:
        yield path, value


def _allows(limit: ArgumentLimit, value: Any) -> bool:
    match limit.rule:
        case LimitRule.ANY:
            return True
        case LimitRule.EQUALS | LimitRule.ONE_OF:
            return any(same(value, one) for one in limit.values)
        case LimitRule.AT_MOST:
            return _is_ordered(least(limit), value, limit.values[0])
        case LimitRule.AT_LEAST:
            return _is_ordered(limit.values[0], value, None)
        case LimitRule.BETWEEN:
            return _is_ordered(limit.values[0], value, limit.values[1])


def _is_ordered(low: Any, value: Any, high: Any) -> bool:
    """Tell whether a number lies between two, of which one may be missing. A number as text is compared with such."""
    found = _number(value)
    for end in (low, high):
        if end is not None and isinstance(end, str) is not isinstance(value, str):
            return False
    least, most = _number(low), _number(high)
    if found is None or (low is not None and least is None) or (high is not None and most is None):
        return False
    return (least is None or least <= found) and (most is None or found <= most)


def _number(value: Any) -> Decimal | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return Decimal(value)
    if isinstance(value, float):
        return Decimal(repr(value)) if math.isfinite(value) else None
    if isinstance(value, str) and _WRITTEN.fullmatch(value):
        return Decimal(value)
    return None

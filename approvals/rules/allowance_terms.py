"""The terms of an allowance: the calls that it covers, how many, and until when. Pure.

Every argument has a limit of its own, and an argument without one does not match: a tool that gets another argument is
not covered. An argument that may have any value has the limit `any`.
"""

import json
import math
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final

from runtime.core.values.enums import Risk
from runtime.core.values.json_values import encode_canonical, is_equal

Path = tuple[str, ...]
MAX_ARGUMENTS: Final = 50
_WRITTEN: Final = re.compile(r"-?[0-9]{1,30}(\.[0-9]{1,30})?")  # a number as text, such as "40.00"
MAX_COUNT: Final = 1_000
MAX_DAYS: Final = 30
ALLOWED_RISKS: Final = frozenset({Risk.LOW, Risk.MEDIUM})  # never high


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


def collect_leaves(args: Any) -> dict[Path, Any]:
    """Return each argument by its path; an object with fields counts as its fields."""
    return dict(_walk_leaves(args, ()))


def find_problem(limit: ArgumentLimit) -> str | None:
    """Describe the error in the values of a limit; None if there is none."""
    count = len(limit.values)
    needed = _COUNTS.get(limit.rule)
    if needed is None and not count:
        return "needs at least one value"
    if needed is not None and count != needed:
        return "takes no value" if needed == 0 else f"needs {needed} value{'s' * (needed > 1)}"
    if limit.rule in ORDERED:
        numbers = [_parse_number(value) for value in limit.values]
        if None in numbers:
            return "needs numbers"
        if len({isinstance(value, str) for value in limit.values}) > 1:
            return "needs two numbers, or two numbers as text"
        if limit.rule is LimitRule.BETWEEN and numbers != sorted(
            numbers, key=lambda number: number or 0
        ):
            return "needs the lower number first"
    return None


def find_mismatch(limits: Collection[ArgumentLimit], args: Any) -> str | None:
    """Name the first argument that its limit does not cover, with the reason; None if all match."""
    if not isinstance(args, dict):
        return "the arguments are not an object"
    arguments, limits_by_path = collect_leaves(args), {limit.path: limit for limit in limits}
    for path, value in arguments.items():
        if path not in limits_by_path:
            return f"{format_path(path)} has no limit"
        if not _is_allowed(limits_by_path[path], value):
            return f"{format_path(path)} is not within its limit"
    for path, limit in limits_by_path.items():
        if path not in arguments and limit.rule is not LimitRule.ANY:
            return f"{format_path(path)} is missing"
    return None


def lower_end(limit: ArgumentLimit) -> Any:
    """Return the lower end of AT_MOST: 0 unless it is negative, because -5,000 is no small refund."""
    (high,) = limit.values
    if (_parse_number(high) or 0) < 0:
        return None
    return "0" if isinstance(high, str) else 0


def format_path(path: Path) -> str:
    """Return the name of an argument for people: `customer.id`."""
    return ".".join(path)


def _walk_leaves(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, dict) and (value or not path):
        for name, inner in value.items():
            yield from _walk_leaves(inner, (*path, str(name)))
    else:
        yield path, value


def _is_allowed(limit: ArgumentLimit, value: Any) -> bool:
    match limit.rule:
        case LimitRule.ANY:
            return True
        case LimitRule.EQUALS | LimitRule.ONE_OF:
            return any(is_equal(value, allowed) for allowed in limit.values)
        case LimitRule.AT_MOST:
            return _is_ordered(lower_end(limit), value, limit.values[0])
        case LimitRule.AT_LEAST:
            return _is_ordered(limit.values[0], value, None)
        case LimitRule.BETWEEN:
            return _is_ordered(limit.values[0], value, limit.values[1])


def _is_ordered(low: Any, value: Any, high: Any) -> bool:
    """Tell whether a number lies between two, of which one may be missing. A number as text is compared with such."""
    number = _parse_number(value)
    for end in (low, high):
        if end is not None and isinstance(end, str) is not isinstance(value, str):
            return False
    bottom, top = _parse_number(low), _parse_number(high)
    if number is None or (bottom is None) != (low is None) or (top is None) != (high is None):
        return False
    return (bottom is None or bottom <= number) and (top is None or number <= top)


def _parse_number(value: Any) -> Decimal | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return Decimal(value)
    if isinstance(value, float):
        return Decimal(repr(value)) if math.isfinite(value) else None
    if isinstance(value, str) and _WRITTEN.fullmatch(value):
        return Decimal(value)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What an allowance is bound to, besides the arguments: `schema` is the digest of the tool's schema.

    `path` goes from the root agent to the tool. `risk` is the one by the policy.
    """

    tool: str
    path: tuple[str, ...]
    schema: str
    effect: str
    risk: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The terms. `request` is the id of the request from whose page the allowance was proposed."""

    action: Action
    limits: tuple[ArgumentLimit, ...]
    count: int
    ends_at: datetime
    request: str

    def text(self) -> str:
        """Return the terms as the JSON text that is stored and signed."""
        return encode_canonical(
            {
                "tool": self.action.tool,
                "path": list(self.action.path),
                "schema": self.action.schema,
                "effect": self.action.effect,
                "risk": self.action.risk,
                "limits": [
                    {
                        "path": list(limit.path),
                        "rule": str(limit.rule),
                        "values": list(limit.values),
                    }
                    for limit in self.limits
                ],
                "count": self.count,
                "ends_at": self.ends_at.astimezone(UTC).isoformat(),
                "request": self.request,
            }
        ).decode()


def read(text: str) -> Terms:
    """Read stored terms. Raises ValueError, KeyError or TypeError."""
    document: dict[str, Any] = json.loads(text)
    return Terms(
        action=Action(
            tool=document["tool"],
            path=tuple(document["path"]),
            schema=document["schema"],
            effect=document["effect"],
            risk=document["risk"],
        ),
        limits=tuple(
            ArgumentLimit(
                path=tuple(limit["path"]),
                rule=LimitRule(limit["rule"]),
                values=tuple(limit["values"]),
            )
            for limit in document["limits"]
        ),
        count=document["count"],
        ends_at=datetime.fromisoformat(document["ends_at"]),
        request=document["request"],
    )


def not_covered(terms: Terms, action: Action, args: Any) -> str | None:
    """Say why the terms do not cover this call; None if they do. Their count and end are not checked here."""
    if action.risk not in ALLOWED_RISKS:
        return f"the risk is {action.risk}"
    for name in ("tool", "path", "schema", "effect", "risk"):
        if getattr(terms.action, name) != getattr(action, name):
            return f"the {name} is another one"
    return find_mismatch(terms.limits, args)


def describe(limits: Collection[ArgumentLimit]) -> list[tuple[str, str]]:
    """Return the name of each argument, and its limit in words."""
    return [(format_path(limit.path), _describe_limit(limit)) for limit in limits]


def _describe_limit(limit: ArgumentLimit) -> str:
    values = [
        value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
        for value in limit.values
    ]
    match limit.rule:
        case LimitRule.ANY:
            return "any value"
        case LimitRule.EQUALS:
            return f"exactly {values[0]}"
        case LimitRule.ONE_OF:
            return f"one of {', '.join(values)}"
        case LimitRule.AT_MOST:
            least = lower_end(limit)
            return f"at most {values[0]}" if least is None else f"from 0 to {values[0]}"
        case LimitRule.AT_LEAST:
            return f"at least {values[0]}"
        case LimitRule.BETWEEN:
            return f"from {values[0]} to {values[1]}"

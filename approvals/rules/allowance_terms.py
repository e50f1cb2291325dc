"""The terms of an allowance: the calls that it covers, how many, and until when. Pure."""

import json
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from approvals.rules import limits as matching
from approvals.rules.limits import ArgumentLimit, LimitRule
from runtime.core.values.enums import Risk
from runtime.core.values.json_values import canonical

MAX_COUNT: Final = 1_000
MAX_DAYS: Final = 30
ALLOWED_RISKS: Final = frozenset({Risk.LOW, Risk.MEDIUM})  # never high


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
        return canonical(
            {
                "tool": self.action.tool,
                "path": list(self.action.path),
                "schema": self.action.schema,
                "effect": self.action.effect,
                "risk": self.action.risk,
                "limits": [
                    {"path": list(one.path), "rule": str(one.rule), "values": list(one.values)}
                    for one in self.limits
                ],
                "count": self.count,
                "ends_at": self.ends_at.astimezone(UTC).isoformat(),
                "request": self.request,
            }
        ).decode()


def read(text: str) -> Terms:
    """Read stored terms. Raises ValueError, KeyError or TypeError."""
    said: dict[str, Any] = json.loads(text)
    return Terms(
        action=Action(
            tool=said["tool"],
            path=tuple(said["path"]),
            schema=said["schema"],
            effect=said["effect"],
            risk=said["risk"],
        ),
        limits=tuple(
            ArgumentLimit(
                path=tuple(one["path"]), rule=LimitRule(one["rule"]), values=tuple(one["values"])
            )
            for one in said["limits"]
        ),
        count=said["count"],
        ends_at=datetime.fromisoformat(said["ends_at"]),
        request=said["request"],
    )


def not_covered(terms: Terms, action: Action, args: Any) -> str | None:
    """Say why the terms do not cover this call; None if they do. Their count and end are not checked here."""
    if action.risk not in ALLOWED_RISKS:
        return f"the risk is {action.risk}"
    for name in ("tool", "path", "schema", "effect", "risk"):
        if getattr(terms.action, name) != getattr(action, name):
            return f"the {name} is another one"
    return matching.mismatch(terms.limits, args)


def describe(limits: Collection[ArgumentLimit]) -> list[tuple[str, str]]:
    """Return the name of each argument, and its limit in words."""
    return [(matching.named(one.path), _words(one)) for one in limits]


def _words(limit: ArgumentLimit) -> str:
    values = [_value(one) for one in limit.values]
    match limit.rule:
        case LimitRule.ANY:
            return "any value"
        case LimitRule.EQUALS:
            return f"exactly {values[0]}"
        case LimitRule.ONE_OF:
            return f"one of {', '.join(values)}"
        case LimitRule.AT_MOST:
            least = matching.least(limit)
            return f"at most {values[0]}" if least is None else f"from 0 to {values[0]}"
        case LimitRule.AT_LEAST:
            return f"at least {values[0]}"
        case LimitRule.BETWEEN:
            return f"from {values[0]} to {values[1]}"


def _value(value: Any) -> str:
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)

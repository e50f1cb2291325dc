"""The conditions of rules: expressions in CEL over the facts of a call. The evaluator has their bounds."""

from collections.abc import Mapping
from typing import Any

from runtime.core.values import expressions
from runtime.core.values.expressions import ExpressionError as ConditionError

__all__ = ["FACTS", "ConditionError", "check", "check_new", "holds", "paths"]

FACTS = ("tool", "agent", "risk", "effect", "requester", "path", "args")
_LARGE = "args"
_SAMPLES = {**dict.fromkeys(FACTS, "text"), "path": ["text"], "args": {}}


def check(text: str) -> None:
    """Raise ConditionError unless the text is a condition within the bounds."""
    expressions.check(text, FACTS, _LARGE)


def check_new(text: str) -> None:
    """Do the same, and raise ConditionError for one that cannot be true or false. A stored one may be older."""
    expressions.check_condition(text, FACTS, _LARGE, _SAMPLES)


def paths(text: str) -> list[tuple[str, ...]]:
    """Return the paths of the arguments that a condition reads."""
    return expressions.paths(text, _LARGE)


def holds(text: str, facts: Mapping[str, Any]) -> bool:
    """Evaluate a condition. Raise ConditionError if it fails for these facts, or is not true or false."""
    return expressions.holds(text, facts, FACTS, _LARGE)

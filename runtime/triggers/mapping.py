"""The mapping of an event to the input of an agent: JSON whose texts hold expressions in CEL in double braces. Pure.

A text that is one expression, such as `{{data.level}}`, becomes its value, of any type. Among other text, the value
of an expression is written into the text.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from runtime.core.values import expressions
from runtime.core.values.json_values import measure_size
from runtime.core.values.limits import MAX_INPUT, MAX_KEY
from runtime.errors import InvalidInput, require_json_input

FACTS = ("id", "source", "name", "subject", "time", "data")
MAX_EXPRESSIONS = 50
MAPPING, FILTER = "mapping", "filter"  # the fields of its errors

_LARGE = "data"
# `data` may be any JSON.
_SAMPLES = {name: "text" for name in FACTS if name != _LARGE}
_EXPRESSION = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)


def check(mapping: Any, field: str = MAPPING) -> Any:
    """Return the mapping. Raise InvalidInput naming the place unless it is JSON with expressions within the bounds."""
    require_json_input(mapping, field)
    if measure_size(mapping) > MAX_INPUT:
        raise InvalidInput(field, f"is {measure_size(mapping)} bytes of JSON; at most {MAX_INPUT}")
    expressions_at = list(_list_expressions(mapping, field))
    count = len(expressions_at)
    if count > MAX_EXPRESSIONS:
        raise InvalidInput(field, f"has {count} expressions, at most {MAX_EXPRESSIONS}")
    for path, text in expressions_at:
        check_expression(text, path)
    return mapping


def check_expression(text: str, field: str) -> None:
    """Raise InvalidInput unless the text is an expression over the facts of an event, within the bounds."""
    try:
        if field == FILTER:
            expressions.check_condition(text, FACTS, _LARGE, _SAMPLES)
        else:
            expressions.check(text, FACTS, _LARGE)
    except expressions.ExpressionError as exc:
        raise InvalidInput(field, str(exc)) from exc


def apply_mapping(mapping: Any, facts: Mapping[str, Any]) -> Any:
    """Return the input that the mapping makes of an event. Raise InvalidInput naming the place."""
    return _Applied(facts).of(mapping, MAPPING)


def is_filter_met(condition: str, facts: Mapping[str, Any]) -> bool:
    """Tell whether a filter holds for an event; an empty one does. Raise InvalidInput naming `filter`."""
    if not condition:
        return True
    try:
        return expressions.evaluate_condition(condition, facts, FACTS, _LARGE)
    except expressions.ExpressionError as exc:
        raise InvalidInput(FILTER, str(exc)) from exc


def evaluate_key(expression: str, facts: Mapping[str, Any], field: str) -> str:
    """Return the value of an expression as a key. Raise InvalidInput naming the field if it is a list, or empty."""
    value = _evaluate_expression(expression, facts, field)
    if value is None or isinstance(value, list | dict) or value == "":
        raise InvalidInput(field, "is empty, a list or an object for this event")
    text = _to_text(value)
    if len(text) > MAX_KEY:
        raise InvalidInput(field, f"has {len(text)} characters for this event, at most {MAX_KEY}")
    return text


def is_open(mapping: Any, field: str) -> bool:
    """Tell whether the value at a path such as `mapping.days[0]` depends on the event, in part or as a part."""
    return any(
        _is_at(field, path) or _is_at(path, field)
        for path, _ in _list_expressions(mapping, MAPPING)
    )


class _Applied:
    """Applies a mapping to one event, up to the size of an input."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self._facts = facts
        self._remaining = MAX_INPUT

    def of(self, value: Any, path: str) -> Any:
        match value:
            case str():
                alone = _EXPRESSION.fullmatch(value)
                if alone and len(_EXPRESSION.findall(value)) == 1:
                    return self._value(alone[1], path)
                return _EXPRESSION.sub(lambda match: _to_text(self._value(match[1], path)), value)
            case list():
                return [self.of(item, f"{path}[{n}]") for n, item in enumerate(value)]
            case dict():
                return {name: self.of(item, f"{path}.{name}") for name, item in value.items()}
            case _:
                return value

    def _value(self, expression: str, path: str) -> Any:
        value = _evaluate_expression(expression, self._facts, path)
        self._remaining -= measure_size(value)
        if self._remaining < 0:
            raise InvalidInput(path, f"makes an input of more than {MAX_INPUT} bytes")
        return value


def _evaluate_expression(expression: str, facts: Mapping[str, Any], path: str) -> Any:
    try:
        value = expressions.evaluate_expression(expression.strip(), facts, FACTS, _LARGE)
    except expressions.ExpressionError as exc:
        raise InvalidInput(path, str(exc)) from exc
    return require_json_input(value, path)


def _is_at(field: str, path: str) -> bool:
    return field == path or field.startswith((f"{path}.", f"{path}["))


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _list_expressions(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """List the expressions of a mapping with their places."""
    match value:
        case str():
            yield from ((path, text.strip()) for text in _EXPRESSION.findall(value))
        case list():
            for n, item in enumerate(value):
                yield from _list_expressions(item, f"{path}[{n}]")
        case dict():
            for name, item in value.items():
                yield from _list_expressions(item, f"{path}.{name}")

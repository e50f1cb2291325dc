"""The mapping of an event to the input of an agent: JSON whose texts hold expressions in CEL in double braces. Pure.

A text that is one expression, such as `{{data.level}}`, becomes its value, of any type. Among other text, the value
of an expression is written into the text.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from runtime.core import expressions
from runtime.core.digest import require_json
from runtime.core.errors import NotJson
from runtime.core.expressions import ExpressionError
from runtime.core.limits import MAX_INPUT, MAX_KEY, size_of
from runtime.errors import InvalidInput

FACTS = ("id", "source", "name", "subject", "time", "data")
MAX_EXPRESSIONS = 50
MAPPING, FILTER = "mapping", "filter"  # the fields of its errors

_LARGE = "data"
# `data` may be any JSON.
_SAMPLES = dict.fromkeys(("id", "source", "name", "subject", "time"), "text")
_PLACE = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)


def check(mapping: Any) -> None:
    """Raise InvalidInput naming the place unless the mapping is JSON whose expressions are within the bounds."""
    try:
        require_json(mapping, MAPPING)
    except NotJson as exc:
        raise InvalidInput(exc.where, exc.why) from exc
    if size_of(mapping) > MAX_INPUT:
        raise InvalidInput(MAPPING, f"is {size_of(mapping)} bytes of JSON; at most {MAX_INPUT}")
    found = list(_expressions(mapping, MAPPING))
    if len(found) > MAX_EXPRESSIONS:
        raise InvalidInput(MAPPING, f"has {len(found)} expressions, at most {MAX_EXPRESSIONS}")
    for where, text in found:
        check_expression(text, where)


def check_expression(text: str, field: str) -> None:
    """Raise InvalidInput unless the text is an expression over the facts of an event, within the bounds."""
    try:
        if field == FILTER:
            expressions.check_condition(text, FACTS, _LARGE, _SAMPLES)
        else:
            expressions.check(text, FACTS, _LARGE)
    except ExpressionError as exc:
        raise InvalidInput(field, str(exc)) from exc


def applied(mapping: Any, facts: Mapping[str, Any]) -> Any:
    """Return the input that the mapping makes of an event. Raise InvalidInput naming the place."""
    return _Applied(facts).of(mapping, MAPPING)


def passes(condition: str, facts: Mapping[str, Any]) -> bool:
    """Tell whether a filter holds for an event; an empty one does. Raise InvalidInput naming `filter`."""
    if not condition:
        return True
    try:
        return expressions.holds(condition, facts, FACTS, _LARGE)
    except ExpressionError as exc:
        raise InvalidInput(FILTER, str(exc)) from exc


def text_of(expression: str, facts: Mapping[str, Any], field: str) -> str:
    """Return the value of an expression as a key. Raise InvalidInput naming the field if it is a list, or empty."""
    found = _value(expression, facts, field)
    if found is None or isinstance(found, list | dict) or found == "":
        raise InvalidInput(field, "is empty, a list or an object for this event")
    text = _written(found)
    if len(text) > MAX_KEY:
        raise InvalidInput(field, f"has {len(text)} characters for this event, at most {MAX_KEY}")
    return text


def is_open(mapping: Any, field: str) -> bool:
    """Tell whether the value at a place such as `mapping.days[0]` depends on the event, in part or as a part."""
    return any(
        _is_at(field, place) or _is_at(place, field) for place, _ in _expressions(mapping, MAPPING)
    )


class _Applied:
    """Applies a mapping to one event, up to the size of an input."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self._facts = facts
        self._left = MAX_INPUT

    def of(self, part: Any, where: str) -> Any:
        match part:
            case str():
                return self._text(part, where)
            case list():
                return [self.of(one, f"{where}[{n}]") for n, one in enumerate(part)]
            case dict():
                return {name: self.of(one, f"{where}.{name}") for name, one in part.items()}
            case _:
                return part

    def _text(self, text: str, where: str) -> Any:
        alone = _PLACE.fullmatch(text)
        if alone and len(_PLACE.findall(text)) == 1:
            return self._value(alone[1], where)
        return _PLACE.sub(lambda found: _written(self._value(found[1], where)), text)

    def _value(self, expression: str, where: str) -> Any:
        found = _value(expression, self._facts, where)
        self._left -= size_of(found)
        if self._left < 0:
            raise InvalidInput(where, f"makes an input of more than {MAX_INPUT} bytes")
        return found


def _value(expression: str, facts: Mapping[str, Any], where: str) -> Any:
    try:
        found = expressions.value(expression.strip(), facts, FACTS, _LARGE)
        require_json(found, where)
    except ExpressionError as exc:
        raise InvalidInput(where, str(exc)) from exc
    except NotJson as exc:
        raise InvalidInput(exc.where, exc.why) from exc
    return found


def _is_at(field: str, place: str) -> bool:
    return field == place or field.startswith((f"{place}.", f"{place}["))


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _expressions(part: Any, where: str) -> Iterator[tuple[str, str]]:
    """List the expressions of a mapping with their places."""
    match part:
        case str():
            yield from ((where, found.strip()) for found in _PLACE.findall(part))
        case list():
            for n, one in enumerate(part):
                yield from _expressions(one, f"{where}[{n}]")
        case dict():
            for name, one in part.items():
                yield from _expressions(one, f"{where}.{name}")

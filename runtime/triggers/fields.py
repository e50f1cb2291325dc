"""Checks single fields that a person sends for a trigger. Each raises InvalidInput naming the field."""

from enum import StrEnum
from typing import TypeVar

from runtime.core.digest import require_json
from runtime.core.errors import NotJson
from runtime.errors import InvalidInput

MAX_NAME = 100  # characters

E = TypeVar("E", bound=StrEnum)


def name(value: object) -> str:
    """Return a name without the blanks around it."""
    stripped = text(value, "name").strip()
    if not 1 <= len(stripped) <= MAX_NAME:
        raise InvalidInput("name", f"must have 1 to {MAX_NAME} characters")
    return stripped


def text(value: object, field: str) -> str:
    """Return a text that Postgres accepts."""
    if value is None:
        raise InvalidInput(field, "is missing: it must be text")
    if not isinstance(value, str):
        raise InvalidInput(field, "must be text")
    try:
        require_json(value)
    except NotJson as exc:
        raise InvalidInput(field, "contains a character that is not text") from exc
    return value


def json(value: object, field: str) -> object:
    """Return a JSON value."""
    try:
        require_json(value, field)
    except NotJson as exc:
        raise InvalidInput(exc.where, exc.why) from exc
    return value


def choice(value: object, field: str, kind: type[E]) -> E:
    """Return one of the members."""
    try:
        return kind(str(value))
    except ValueError as exc:
        raise InvalidInput(field, f"must be one of {', '.join(kind)}") from exc


def whole_number(value: object, field: str, least: int, greatest: int, unit: str = "") -> int:
    """Return a whole number in this range."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= greatest:
        unit = f" of {unit}" if unit else ""
        raise InvalidInput(field, f"must be a whole number{unit} from {least} to {greatest}")
    return value

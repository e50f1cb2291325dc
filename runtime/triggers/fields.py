"""The fields of a definition that a person sends: what the API says of each, and its check.

A rule is the metadata of a field of the definition's dataclass. Each check raises InvalidInput naming the field.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields
from enum import StrEnum
from typing import Any, TypeVar

from runtime.core.values.errors import NotJson
from runtime.core.values.json_values import require_json
from runtime.errors import InvalidInput

MAX_NAME = 100  # characters

E = TypeVar("E", bound=StrEnum)
Check = Callable[[Any, str], Any]  # of a value and the name of its field


def make_rule(
    schema: Mapping[str, Any], check: Check | None = None, *, default: Any = ...
) -> dict[str, Any]:
    """Return the rule of a field. It must be sent without a `default`; without a `check` the reader checks it."""
    return {"schema": schema, "check": check, "default": default}


def make_text_rule(
    check: Check, maximum: int | None = None, *, default: Any = ...
) -> dict[str, Any]:
    """Return the rule of a text."""
    limit = {} if maximum is None else {"maxLength": maximum}
    return make_rule({"type": "string", **limit}, check, default=default)


def make_number_rule(
    least: int, greatest: int, unit: str = "", *, default: int | None
) -> dict[str, Any]:
    """Return the rule of a whole number in this range. Null means the default."""
    kind: Any = ["integer", "null"] if default is None else "integer"

    def check(value: object, field: str) -> int | None:
        return default if value is None else read_whole_number(value, field, least, greatest, unit)

    return make_rule({"type": kind, "minimum": least, "maximum": greatest}, check, default=default)


def make_choice_rule(kind: type[StrEnum], *, default: StrEnum) -> dict[str, Any]:
    """Return the rule of a choice."""
    return make_rule(
        {"enum": [*kind]},
        lambda value, field: read_choice(value, field, kind),
        default=str(default),
    )


def check_all(definition: type, sent: Mapping[str, object]) -> dict[str, Any]:
    """Return the values of the fields of a definition that have a check. Raise InvalidInput with all wrong ones."""
    values, problems = dict[str, Any](), list[InvalidInput]()
    for field in fields(definition):
        check, default = field.metadata.get("check"), field.metadata.get("default")
        if check is None:
            continue
        try:
            values[field.name] = check(
                sent.get(field.name, None if default is ... else default), field.name
            )
        except InvalidInput as exc:
            problems += [exc, *exc.further]
    if problems:
        raise InvalidInput(problems[0].field, problems[0].detail, problems[1:])
    return values


def read_name(value: object, field: str = "name", maximum: int = MAX_NAME) -> str:
    """Return a name without the blanks around it."""
    stripped = read_text(value, field).strip()
    if not 1 <= len(stripped) <= maximum:
        raise InvalidInput(field, f"must have 1 to {maximum} characters")
    return stripped


def read_text(value: object, field: str) -> str:
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


def read_choice(value: object, field: str, kind: type[E]) -> E:
    """Return one of the members."""
    try:
        return kind(str(value))
    except ValueError as exc:
        raise InvalidInput(field, f"must be one of {', '.join(kind)}") from exc


def read_whole_number(value: object, field: str, least: int, greatest: int, unit: str = "") -> int:
    """Return a whole number in this range."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= greatest:
        unit = f" of {unit}" if unit else ""
        raise InvalidInput(field, f"must be a whole number{unit} from {least} to {greatest}")
    return value


NAME = make_text_rule(read_name, MAX_NAME)
TEXT = make_text_rule(read_text)

"""The arguments of a call for reviewers: all of them in full, each with its type from the schema."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runtime.core.json_schema import describe


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One argument. `given` is False for an argument of the schema that the call omits."""

    name: str
    type: str
    value: Any
    given: bool


def arguments(args: Any, schema: Any) -> list[Argument]:
    """List the given arguments in the schema's order, then the omitted ones.

    A value that is no object is one argument.
    """
    known = _properties(schema)
    if not isinstance(args, dict):
        return [Argument(name="arguments", type=_json_type(args), value=args, given=True)]
    required = schema.get("required", []) if isinstance(schema, dict) else []
    names = [name for name in known if name in args] + [name for name in args if name not in known]
    shown = [
        Argument(
            name=name,
            type=_words(known.get(name), schema, args[name], optional=name not in required),
            value=args[name],
            given=True,
        )
        for name in names
    ]
    left_out = [
        Argument(
            name=name,
            type=_words(known[name], schema, None, optional=True),
            value=_default(known[name]),
            given=False,
        )
        for name in known
        if name not in args
    ]
    return shown + left_out


def _properties(schema: Any) -> Mapping[str, Any]:
    found = schema.get("properties") if isinstance(schema, dict) else None
    return found if isinstance(found, dict) else {}


def _default(part: Any) -> Any:
    return part.get("default") if isinstance(part, dict) else None


def _words(part: Any, schema: Any, value: Any, *, optional: bool) -> str:
    if part is None:
        return f"{_json_type(value)} · not in the schema"
    words = describe(part, schema) or _json_type(value)
    return f"{words} · optional" if optional else words


def _json_type(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"

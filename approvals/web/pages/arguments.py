"""The arguments of a call as a person reads them: every one, whole, with its type from the schema."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One argument. `given` is False for one the schema knows and the call leaves to its default."""

    name: str
    type: str
    value: Any
    given: bool


def arguments(args: Any, schema: Any) -> list[Argument]:
    """List the given arguments in the schema's order, then the omitted ones; a value that is no object is one."""
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
    words = list(_facts(_resolved(part, schema), schema)) or [_json_type(value)]
    return " · ".join(words + (["optional"] if optional else []))


def _facts(part: Mapping[str, Any], schema: Any) -> Iterator[str]:
    """The type and what limits it: `string · email`, `integer · 1 to 5`, `one of 4 values`."""
    choices = part.get("anyOf") or part.get("oneOf")
    if isinstance(choices, list):
        kinds = (" · ".join(_facts(_resolved(choice, schema), schema)) for choice in choices)
        yield " or ".join(kinds)
        return
    kind = part.get("type")
    if kind is not None:
        yield " or ".join(str(each) for each in kind) if isinstance(kind, list) else str(kind)
    if "format" in part:
        yield str(part["format"])
    if isinstance(part.get("enum"), list):
        yield f"one of {', '.join(_brief(choice) for choice in part['enum'])}"
    if "const" in part:
        yield f"always {_brief(part['const'])}"
    yield from _bounds(part)


def _bounds(part: Mapping[str, Any]) -> Iterator[str]:
    low, high = part.get("minimum"), part.get("maximum")
    if low is not None and high is not None:
        yield f"{low} to {high}"
    elif low is not None:
        yield f"at least {low}"
    elif high is not None:
        yield f"at most {high}"


def _resolved(part: Any, schema: Any) -> Mapping[str, Any]:
    """The part itself, or what its `$ref` into `$defs` points to."""
    if not isinstance(part, dict):
        return {}
    name = str(part.get("$ref", "")).removeprefix("#/$defs/")
    target = schema.get("$defs", {}).get(name) if name and isinstance(schema, dict) else None
    # One step only: a definition that points to itself must not send a page round in circles.
    if isinstance(target, dict):
        return {
            key: value for key, value in target.items() if key not in ("$ref", "anyOf", "oneOf")
        }
    return part


def _brief(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


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

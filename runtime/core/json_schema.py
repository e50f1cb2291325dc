"""A published JSON Schema as people read it: the names in it, what each may be, and whether it must be given."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One property of an object. `rule` is its schema with references followed; `default` is JSON or None."""

    name: str
    title: str
    rule: Mapping[str, Any]
    required: bool
    default: Any

    @property
    def description(self) -> str:
        return str(self.rule.get("description", ""))

    @property
    def type(self) -> str:
        """The type and its limits in words: `integer · 1 to 5`."""
        return " · ".join(_facts(self.rule)) or "any JSON"


def parts(schema: Any) -> tuple[Part, ...]:
    """The properties of an object's schema; none if it is the schema of something else.

    The required ones come first, in the order in which they are listed: a stored schema has kept no other.
    """
    found = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(found, dict):
        return ()
    required = [name for name in schema.get("required", []) if name in found]
    names = required + [name for name in found if name not in required]
    return tuple(
        Part(
            name=name,
            title=str(_target(found[name], schema).get("title", name)),
            rule=_resolved(found[name], schema),
            required=name in required,
            default=_target(found[name], schema).get("default"),
        )
        for name in names
    )


def brief(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _resolved(rule: Any, schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The rule, what its `$ref` points to, or the one choice beside null. One step each: rules may be circular."""
    target = _target(rule, schema)
    choices = target.get("anyOf")
    if isinstance(choices, list):
        real = [choice for choice in choices if choice != {"type": "null"}]
        if len(real) == 1:
            return {**target, **_target(real[0], schema)}
    return target


def _target(rule: Any, schema: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(rule, dict):
        return {}
    name = str(rule.get("$ref", "")).removeprefix("#/$defs/")
    target = schema.get("$defs", {}).get(name) if name else None
    return {**rule, **target} if isinstance(target, dict) else rule


def _facts(rule: Mapping[str, Any]) -> Iterator[str]:
    if isinstance(rule.get("enum"), list):
        yield f"one of {', '.join(brief(choice) for choice in rule['enum'])}"
        return
    kind = rule.get("type")
    if kind is not None:
        yield " or ".join(str(each) for each in kind) if isinstance(kind, list) else str(kind)
    if "format" in rule:
        yield str(rule["format"])
    if "const" in rule:
        yield f"always {brief(rule['const'])}"
    yield from _bounds(rule.get("minimum"), rule.get("maximum"), "")
    yield from _bounds(rule.get("minLength"), rule.get("maxLength"), " characters")


def _bounds(low: Any, high: Any, unit: str) -> Iterator[str]:
    if low is not None and high is not None:
        yield f"{low} to {high}{unit}"
    elif low is not None:
        yield f"at least {low}{unit}"
    elif high is not None:
        yield f"at most {high}{unit}"

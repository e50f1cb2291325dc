"""Compares JSON Schemas of a tool's arguments: whether calls made under the first mean the same under the second."""

from collections.abc import Mapping
from typing import Any

from runtime.core.digest import canonical

# Words for people and models, which no value is checked by.
_WORDING = frozenset({"title", "description", "examples"})
# Their keys are names that an author chose, and their values are schemas.
_NAMED = frozenset({"properties", "$defs", "patternProperties", "dependentSchemas"})
# They hold values, not schemas.
_VALUES = frozenset({"default", "const", "enum", "required", "discriminator"})


def is_compatible(before: Any, after: Any) -> bool:
    """Tell whether only words changed, and optional arguments and definitions for them were added.

    An argument is new only if the first schema refused it: a call cannot have meant anything else by it. A required one
    changes `required`. The arguments inside of objects must stay as they are.
    """
    if not isinstance(before, Mapping) or not isinstance(after, Mapping):
        return False
    old, new = _meaning(before), _meaning(after)
    names, more = old.pop("properties", {}), new.pop("properties", {})
    known, defined = old.pop("$defs", {}), new.pop("$defs", {})
    added = [name for name in more if name not in names]
    if added and old.get("additionalProperties") is not False:
        return False
    return _same(old, new) and _includes(more, names) and _includes(defined, known)


def _includes(more: Mapping[str, Any], fewer: Mapping[str, Any]) -> bool:
    return all(name in more and _same(more[name], one) for name, one in fewer.items())


def _same(one: Any, other: Any) -> bool:
    """Compare as JSON: Python takes 1 and true for the same."""
    return canonical(one) == canonical(other)


def _meaning(schema: Any) -> Any:
    """Return the schema without the words for people and models."""
    if isinstance(schema, list):
        return [_meaning(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {key: _part(key, one) for key, one in schema.items() if key not in _WORDING}


def _part(key: str, value: Any) -> Any:
    if key in _NAMED and isinstance(value, Mapping):
        return {name: _meaning(one) for name, one in value.items()}
    return value if key in _VALUES else _meaning(value)

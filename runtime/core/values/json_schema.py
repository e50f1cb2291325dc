"""Checks values against JSON Schemas, describes schemas in words, and compares two schemas of a tool's arguments."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend
from pydantic_core import SchemaError, SchemaValidator, core_schema
from referencing import Registry
from referencing.exceptions import Unresolvable

from runtime.core.values.json_values import encode_canonical

MAX_MESSAGE = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A field of a value and the limit that it breaks."""

    field: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Property:
    """One property of an object. `rule` is its schema with references followed; `default` is JSON or None."""

    name: str
    title: str
    type: str
    rule: Mapping[str, Any]
    required: bool
    default: Any

    @property
    def description(self) -> str:
        """The schema's description of the property, or an empty text."""
        return str(self.rule.get("description", ""))


def write_only(schema: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of properties whose values no reader may see."""
    rules = schema.get("properties", {})
    return frozenset(
        name for name, rule in rules.items() if isinstance(rule, dict) and "writeOnly" in rule
    )


def list_problems(schema: Mapping[str, Any] | str, value: Any, prefix: str) -> list[Problem]:
    """List the problems of a JSON value, at most one for each field, the least deep first.

    The schema may be given as its text. Fields are dotted paths that begin with `prefix`.
    """
    text = schema if isinstance(schema, str) else json.dumps(schema)
    if _plain_check(text)(value):
        return []
    token = _ERRORS.set({})
    try:
        validator = _make_validator(text)
        errors = sorted(validator.iter_errors(value), key=lambda error: len(error.absolute_path))
    except (Unresolvable, re.error, RecursionError) as exc:  # of the schema, not of the value
        return [Problem(field=prefix, detail=f"cannot be checked: {exc}")]
    finally:
        _ERRORS.reset(token)
    by_field: dict[str, Problem] = {}
    for error in errors:
        path = ".".join([prefix, *(str(step) for step in error.absolute_path)])
        limits: Any = error.validator_value
        instance: Any = error.instance
        rule: Any = error.schema
        match error.validator:
            case "required":
                fields = [f"{path}.{name}" for name in limits if name not in instance]
            case "additionalProperties":
                expected = rule.get("properties", {})
                fields = [f"{path}.{name}" for name in instance if name not in expected]
            case _:
                fields = [path]
        for field in fields:
            detail = _limit(error, field, validator.schema)
            by_field.setdefault(field, Problem(field=field, detail=detail))
    return list(by_field.values())


def describe(rule: Any, schema: Any) -> str:
    """Return the type and its limits in words: `integer · 1 to 5`; empty if the rule has none."""
    target = _target(rule, schema)
    if "$ref" in target:  # its choices are left out: a definition may point to itself
        target = {
            key: value for key, value in target.items() if key not in ("$ref", "anyOf", "oneOf")
        }
    choices = target.get("anyOf") or target.get("oneOf")
    if isinstance(choices, list):
        descriptions = [describe(choice, schema) for choice in choices]
        return " or ".join(dict.fromkeys(text for text in descriptions if text))
    if isinstance(target.get("enum"), list):
        return f"one of {', '.join(format_value(choice) for choice in target['enum'])}"
    facts: list[str] = []
    kind = target.get("type")
    if kind is not None:
        kinds = kind if isinstance(kind, list) else [kind]
        facts.append(" or ".join(map(str, kinds)))
    if "format" in target:
        facts.append(str(target["format"]))
    if "const" in target:
        facts.append(f"always {format_value(target['const'])}")
    facts += _describe_bounds(target.get("minimum"), target.get("maximum"), "")
    facts += _describe_bounds(target.get("minLength"), target.get("maxLength"), " characters")
    return " · ".join(facts)


def list_properties(schema: Any) -> tuple[Property, ...]:
    """List the properties of an object's schema; none if the schema is not of an object.

    The required ones come first, in the order in which they are listed: a stored schema keeps no other order.
    """
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return ()
    required = [name for name in schema.get("required", []) if name in properties]
    names = required + [name for name in properties if name not in required]
    return tuple(
        Property(
            name=name,
            title=str(_target(properties[name], schema).get("title", name)),
            type=describe(_resolve_rule(properties[name], schema), schema) or "any JSON",
            rule=_resolve_rule(properties[name], schema),
            required=name in required,
            default=_target(properties[name], schema).get("default"),
        )
        for name in names
    )


def may_have(schema: Mapping[str, Any], path: Sequence[str]) -> bool:
    """Tell whether a value of this schema may have a value at this path of names. It may where the schema is open."""
    rule: Any = schema
    for name in path:
        rule = _resolve_rule(rule, schema)
        properties = rule.get("properties")
        if not isinstance(properties, dict):
            return True
        if name not in properties:
            return bool(rule.get("additionalProperties"))
        rule = properties[name]
    return True


def format_value(value: Any) -> str:
    """Show a text as it is, and any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _resolve_rule(rule: Any, schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the rule, the target of its `$ref`, or its one choice beside null.

    Each is followed one step only, because schemas may be circular.
    """
    target = _target(rule, schema)
    choices = target.get("anyOf")
    if isinstance(choices, list):
        real = [choice for choice in choices if choice != {"type": "null"}]
        if len(real) == 1:
            limits = {name: limit for name, limit in target.items() if name != "anyOf"}
            return {**limits, **_target(real[0], schema)}
    return target


def _target(rule: Any, schema: Any) -> Mapping[str, Any]:
    if not isinstance(rule, dict):
        return {}
    name = str(rule.get("$ref", "")).removeprefix("#/$defs/")
    target = schema.get("$defs", {}).get(name) if name and isinstance(schema, dict) else None
    return {**rule, **target} if isinstance(target, dict) else rule


def _describe_bounds(low: Any, high: Any, unit: str) -> Iterator[str]:
    if low is not None and high is not None:
        yield f"{low} to {high}{unit}"
    elif low is not None:
        yield f"at least {low}{unit}"
    elif high is not None:
        yield f"at most {high}{unit}"


def _limit(error: ValidationError, field: str, root: Any) -> str:
    """Return the limit, not the value, which may be long or secret. `errorMessage` is the author's own sentence."""
    schema: Any = error.schema
    required: Any = error.validator_value
    match error.validator:
        case "required":
            name = next(name for name in required if field.endswith(f".{name}"))
            rule = describe(schema.get("properties", {}).get(name), root)
            return f"is missing: it must be {rule}" if rule else "is missing"
        case "additionalProperties":
            return "is not expected"
        case _ if isinstance(schema.get("errorMessage"), str):
            return str(schema["errorMessage"])[:MAX_MESSAGE]
        case "type":
            return f"must be of type {error.validator_value}"
        case "minLength":
            return f"must have at least {error.validator_value} characters"
        case "maxLength":
            return f"must have at most {error.validator_value} characters"
        case "minimum":
            return f"must be at least {error.validator_value}"
        case "maximum":
            return f"must be at most {error.validator_value}"
        case "pattern":
            return _describe_pattern(str(error.validator_value), schema)
        case ("anyOf" | "oneOf") as either:
            words = describe({either: error.validator_value}, root)
            return f"must be {words}" if words and error.message == _NO_CHOICE else error.message
        case other:
            return f"breaks the limit {other}: {json.dumps(error.validator_value)}"


# A text of certain characters, the first of them perhaps of fewer, as names and codes have.
_CHARACTERS = r"\[((?:[^\]\\^]|\\[^wWdDsS])+)\]"
_PLAIN = re.compile(rf"\^{_CHARACTERS}(?:{_CHARACTERS})?[*+]\$")


def _describe_pattern(pattern: str, schema: Mapping[str, Any]) -> str:
    """Say in words what a pattern asks for, or by the schema's example: people cannot be expected to read it."""
    if form := schema.get("format"):
        return f"must be a valid {form}"
    if match := _PLAIN.fullmatch(pattern):
        first, following = match.groups()
        if following in (None, first):
            return f"must have only these characters: {_describe_characters(first)}"
        begins = f"must begin with one of these characters: {_describe_characters(first)}"
        return f"{begins}; after it, only these: {_describe_characters(following)}"
    if example := format_example(schema):
        return f"must have the form of {example}"
    about = schema.get("description")
    return f"must fit its description: {about}" if about else f"must match {pattern}"


def format_example(schema: Mapping[str, Any]) -> str:
    """Return the schema's first example as text, or an empty text."""
    examples = schema.get("examples")
    return format_value(examples[0]) if isinstance(examples, list) and examples else ""


def _describe_characters(characters: str) -> str:
    ranges = re.findall(r"\\?.-\\?.|\\?.", characters)
    return " ".join("space" if text == " " else text.replace("\\", "") or text for text in ranges)


def _check_pattern(
    validator: Any, pattern: str, instance: Any, schema: dict[str, Any]
) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not _compile_pattern(pattern)(instance):
        yield ValidationError(f"does not match {pattern}")


@lru_cache(256)
def _compile_pattern(pattern: str) -> Callable[[str], object]:
    """Return the check of a pattern by pydantic, which checks the same arguments later: its time is linear.

    A pattern that it does not know is one of Python, read as in ECMA 262: `$` is the end of the text, and no newline
    may follow.
    """
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern)).isinstance_python
    except SchemaError:
        return re.compile(re.sub(r"(?<!\\)\$$", r"\\Z", pattern)).search


# Of the check that is under way: the first error of a part of the value, by its id, beside a choice. Without it types
# that refer to each other in `anyOf` are checked 2^depth times.
_ERRORS: ContextVar[dict[tuple[int, int], ValidationError | None]] = ContextVar("errors")
_NO_CHOICE = "fits no choice"
# Limits that no other value of the type fits.
_OF_TYPE = ("type", "enum", "const", "anyOf", "oneOf")


def _find_first_error(validator: Any, choice: Any, instance: Any) -> ValidationError | None:
    errors, key = _ERRORS.get(), (id(choice), id(instance))
    if key not in errors:
        errors[key] = next(validator.descend(instance, choice), None)
    return errors[key]


def _check_any_of(
    validator: Any, choices: list[Any], instance: Any, schema: dict[str, Any]
) -> Iterator[ValidationError]:
    """Yield the errors beside the one choice that has the type of the value, or one error beside all choices."""
    errors = [_find_first_error(validator, choice, instance) for choice in choices]
    if None in errors:
        return
    near = [
        choice
        for choice, error in zip(choices, errors, strict=True)
        if error and (error.path or error.validator not in _OF_TYPE)
    ]
    if len(near) == 1 and "errorMessage" not in schema:
        yield from validator.descend(instance, near[0])
    else:
        yield ValidationError(_NO_CHOICE)


def _check_one_of(
    validator: Any, choices: list[Any], instance: Any, schema: dict[str, Any]
) -> Iterator[ValidationError]:
    if [_find_first_error(validator, choice, instance) for choice in choices].count(None) > 1:
        yield ValidationError("fits more than one choice")
    yield from _check_any_of(validator, choices, instance, schema)


def _is_integer(_checker: Any, instance: Any) -> bool:
    """Refuse 3.0 as an integer, because a tool that takes an int refuses it later."""
    return isinstance(instance, int) and not isinstance(instance, bool)


_Validator: type[Draft202012Validator] = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator,
    validators={"pattern": _check_pattern, "anyOf": _check_any_of, "oneOf": _check_one_of},
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine("integer", _is_integer),
)


@lru_cache(256)
def _make_validator(schema: str) -> Draft202012Validator:
    """Return the validator of a schema, cached because each start of a run needs it.

    Its registry is empty, so that a reference to an address is never fetched.
    """
    return _Validator(json.loads(schema), registry=Registry())


# Words for people and models, which no value is checked by.
_WORDING = frozenset({"title", "description", "examples"})
_UNCHECKED = _WORDING | {"default", "format", "errorMessage", "writeOnly", "$defs"}
_SIMPLE: dict[str, tuple[Callable[..., core_schema.CoreSchema], dict[str, str]]] = {
    "string": (core_schema.str_schema, {"minLength": "min_length", "maxLength": "max_length"}),
    "integer": (core_schema.int_schema, {"minimum": "ge", "maximum": "le"}),
    "boolean": (core_schema.bool_schema, {}),
}


@lru_cache(256)
def _plain_check(schema: str) -> Callable[[Any], bool]:
    """Return a check by pydantic that refuses every value with a problem, and for some schemas every value."""
    try:
        return SchemaValidator(_plain_schema(json.loads(schema))).isinstance_python
    except (LookupError, TypeError, AttributeError, ValueError, RecursionError, SchemaError):
        return lambda _: False  # it has other limits, or is no schema


def _plain_schema(rule: Any) -> Any:
    limits: dict[Any, Any] = {key: rule[key] for key in rule.keys() - _UNCHECKED}
    remainder: Any = limits
    match limits:
        case {"anyOf": choices, **remainder}:
            schema: core_schema.CoreSchema = core_schema.union_schema(
                [*map(_plain_schema, choices)]
            )
        case {"type": "null", **remainder}:
            schema = core_schema.none_schema()
        case {"type": "array", "items": items, **remainder}:
            schema = core_schema.list_schema(_plain_schema(items), strict=True)
        case {"type": "object", "properties": rules, "additionalProperties": False, **remainder}:
            fields = {
                name: core_schema.typed_dict_field(_plain_schema(inner), required=False)
                for name, inner in rules.items()
            }
            for name in remainder.pop("required", ()):
                fields[name]["required"] = True
            schema = core_schema.typed_dict_schema(fields, extra_behavior="forbid", strict=True)
        case {"type": kind, **bounds}:
            make, names = _SIMPLE[kind]
            return make(strict=True, **{names[key]: bound for key, bound in bounds.items()})
        case _:  # any value fits a rule without limits
            schema = core_schema.any_schema()
    if remainder:
        raise LookupError
    return schema


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
    old, new = _strip_wording(before), _strip_wording(after)
    old_args, new_args = old.pop("properties", {}), new.pop("properties", {})
    old_defs, new_defs = old.pop("$defs", {}), new.pop("$defs", {})
    added = [name for name in new_args if name not in old_args]
    if added and old.get("additionalProperties") is not False:
        return False
    return (
        _is_same(old, new)
        and _has_all_rules(new_args, old_args)
        and _has_all_rules(new_defs, old_defs)
    )


def _has_all_rules(larger: Mapping[str, Any], smaller: Mapping[str, Any]) -> bool:
    return all(name in larger and _is_same(larger[name], rule) for name, rule in smaller.items())


def _is_same(value: Any, other: Any) -> bool:
    """Compare as JSON: Python takes 1 and true for the same."""
    return encode_canonical(value) == encode_canonical(other)


def _strip_wording(schema: Any) -> Any:
    """Return the schema without the words for people and models."""
    if isinstance(schema, list):
        return [_strip_wording(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    meaning = {}
    for key, value in schema.items():
        if key in _NAMED and isinstance(value, Mapping):
            meaning[key] = {name: _strip_wording(rule) for name, rule in value.items()}
        elif key not in _WORDING:
            meaning[key] = value if key in _VALUES else _strip_wording(value)
    return meaning

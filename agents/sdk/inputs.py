"""Checks a value against a JSON Schema, and names the field and the limit of each problem."""

import inspect
import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend
from pydantic import BaseModel
from pydantic import ValidationError as PydanticError

from runtime.core.digest import require_json
from runtime.core.errors import NotJson
from runtime.core.limits import MAX_INPUT, MAX_INSTRUCTIONS, size_of
from runtime.errors import InvalidInput


def check(schema: dict[str, Any], value: Any, *, where: str = "input") -> None:
    """Raise InvalidInput unless `value` is JSON, at most 64 KB of it, and fits `schema`.

    `where` is the first word of the dotted path that names the field.
    """
    raise_all(problems(schema, value, where=where))


def check_text(schema: str, value: Any) -> None:
    """Raise InvalidInput unless `value` fits the schema in this text, as `check` does."""
    raise_all(_problems(_of_text(schema), value, "input"))


def raise_all(found: Sequence[InvalidInput]) -> None:
    """Raise the first of these problems, with the others attached; do nothing if there is none."""
    if found:
        first, *others = found
        raise InvalidInput(first.field, first.detail, others)


def read(model: type[BaseModel], value: Any, *, where: str = "input") -> Any:
    """Read JSON with a Pydantic model, defaults and validators included, and return it as JSON.

    Raise InvalidInput with all errors.
    """
    try:
        read = model.model_validate_json(json.dumps(value))
        found = read.model_dump(mode="json", by_alias=True)
        require_json(found, where)
    except PydanticError as exc:
        raise_all([InvalidInput(_place(where, one["loc"]), one["msg"]) for one in exc.errors()])
    except NotJson as exc:
        raise InvalidInput(exc.where, exc.why) from exc
    except Exception as exc:  # of a validator
        why = f"its model {model.__name__} failed: {type(exc).__name__}: {exc}"
        raise InvalidInput(where, why) from exc
    return found


def instructions(make: Callable[[Any], str], model: type[BaseModel], given: Any) -> str:
    """Call an agent's function of instructions with an input that `read` returned. Raise InvalidInput."""
    try:
        text = make(model.model_validate_json(json.dumps(given)))
        require_json(text, "instructions")
    except NotJson as exc:
        raise InvalidInput("instructions", exc.why) from exc
    except Exception as exc:  # of the function
        why = f"their function {make.__name__} failed: {type(exc).__name__}: {exc}"
        raise InvalidInput("instructions", why) from exc
    if not isinstance(text, str) or not 0 < len(text.strip()) <= MAX_INSTRUCTIONS:
        what = f"a text of 1 to {MAX_INSTRUCTIONS} characters"
        raise InvalidInput("instructions", f"their function {make.__name__} must return {what}")
    return inspect.cleandoc(text)


def _place(where: str, location: Sequence[int | str]) -> str:
    return ".".join([where, *map(str, location)])


def problems(schema: dict[str, Any], value: Any, *, where: str = "input") -> list[InvalidInput]:
    """List the problems, at most one for each field, the least deep first."""
    return _problems(_Validator(schema), value, where)


def _problems(validator: Draft202012Validator, value: Any, where: str) -> list[InvalidInput]:
    try:
        require_json(value, where)
    except NotJson as exc:
        return [InvalidInput(exc.where, exc.why)]
    size = size_of(value)
    if size > MAX_INPUT:
        detail = f"is {size} bytes of JSON, at most {MAX_INPUT} are allowed"
        return [InvalidInput(where, detail)]
    errors = sorted(validator.iter_errors(value), key=lambda error: len(error.absolute_path))
    found: dict[str, InvalidInput] = {}
    for error in errors:
        for field in _fields(error, where):
            found.setdefault(field, InvalidInput(field, _detail(error)))
    return list(found.values())


def _fields(error: ValidationError, where: str) -> list[str]:
    """Return the fields of an error: the field itself, or its missing or unexpected fields."""
    path = [where, *(str(step) for step in error.absolute_path)]
    value: Any = error.instance
    rule: Any = error.validator_value
    schema: Any = error.schema
    match error.validator:
        case "required":
            names = [name for name in rule if name not in value]
        case "additionalProperties":
            names = [name for name in value if name not in schema.get("properties", {})]
        case _:
            return [".".join(path)]
    return [".".join([*path, name]) for name in names]


def _detail(error: ValidationError) -> str:
    """Return the limit, not the value, which may be long or secret."""
    match error.validator:
        case "required":
            return "is missing"
        case "additionalProperties":
            return "is not expected"
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
            schema: Any = error.schema
            form = schema.get("format")
            return f"must be a valid {form}" if form else f"must match {error.validator_value}"
        case other:
            return f"breaks the limit {other}: {json.dumps(error.validator_value)}"


def _pattern(
    validator: Any, pattern: str, instance: Any, schema: dict[str, Any]
) -> Iterator[ValidationError]:
    """Match a pattern as in ECMA 262, where `$` is the end of the text. In Python a newline may follow."""
    anchored = re.sub(r"(?<!\\)\$$", r"\\Z", pattern)
    if isinstance(instance, str) and not re.search(anchored, instance):
        yield ValidationError(f"does not match {pattern}")


def _is_integer(_checker: Any, instance: Any) -> bool:
    """Refuse 3.0 as an integer, because a tool that takes an int refuses it later."""
    return isinstance(instance, int) and not isinstance(instance, bool)


_Validator: type[Draft202012Validator] = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator,
    validators={"pattern": _pattern},
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine("integer", _is_integer),
)


@lru_cache(256)
def _of_text(schema: str) -> Draft202012Validator:
    """Return the validator of a published schema, cached because each start of a run needs it."""
    return _Validator(json.loads(schema))

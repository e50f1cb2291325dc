"""Reads a typed function as a JSON Schema of its arguments, or explains why it has none."""

import inspect
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NotRequired, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from pydantic_core import SchemaError, to_json
from typing_extensions import TypedDict

from agents.errors import DefinitionError
from runtime.core.values.errors import NotJson
from runtime.core.values.json_values import require_json


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSignature:
    """`result` checks the returned value and makes JSON of it; None if the function declares no type of result."""

    arguments: TypeAdapter[dict[str, Any]]
    schema: dict[str, Any]
    result: TypeAdapter[Any] | None
    result_schema: dict[str, Any] | None
    defaults: dict[str, Any]
    wants_context: bool


def read_signature(function: Callable[..., Any], label: str, *, context: type) -> ToolSignature:
    """Return the schema of the arguments of `function`. It allows no others, and omits a first `context`."""
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as exc:
        raise DefinitionError(f"{label}: a type is not known: {exc}") from exc
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise DefinitionError(f"{label}: it yields, so a call would run nothing of it: use return")
    parameters = list(inspect.signature(function).parameters.values())
    wants_context = bool(parameters) and hints.get(parameters[0].name) is context
    parameters = parameters[1:] if wants_context else parameters
    for parameter in parameters:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise DefinitionError(f"{label}: argument {parameter.name} cannot be given by name")
        if parameter.name not in hints:
            raise DefinitionError(f"{label}: argument {parameter.name} has no type")
        if hints[parameter.name] is context:
            raise DefinitionError(f"{label}: the context must be the first parameter")
        adapter = _build(hints[parameter.name], f"{label}: argument {parameter.name}")
        if parameter.default is parameter.empty:
            continue
        default = f"{label}: the default of {parameter.name}"
        try:
            require_json(parameter.default, default)
            adapter.validate_json(to_json(parameter.default), strict=True)  # as a call gives it
        except NotJson as exc:
            raise DefinitionError(str(exc)) from exc
        except ValidationError as exc:
            problem = exc.errors()[0]["msg"]
            raise DefinitionError(f"{default} is not of its type: {problem}") from exc
    result = _build_result_adapter(hints.get("return", Any), label)
    # Copies: a function may change its own.
    defaults = {p.name: deepcopy(p.default) for p in parameters if p.default is not p.empty}
    fields = {
        p.name: NotRequired[hints[p.name]] if p.name in defaults else hints[p.name]
        for p in parameters
    }
    # An argument name could clash with an attribute of a model class. No type checker knows its types and keys.
    make: Any = TypedDict
    arguments = make(function.__name__, fields)
    arguments.__pydantic_config__ = ConfigDict(extra="forbid")
    adapter = _build(arguments, label)
    schema = build_json_schema(adapter, label)
    schema.setdefault("properties", {})
    for name, value in defaults.items():
        schema["properties"][name]["default"] = deepcopy(value)
    return ToolSignature(
        arguments=adapter,
        schema=schema,
        result=result,
        result_schema=None if result is None else result.json_schema(mode="serialization"),
        defaults=defaults,
        wants_context=wants_context,
    )


def build_json_schema(adapter: TypeAdapter[Any], label: str) -> dict[str, Any]:
    """Return the JSON Schema of an adapter. Raise DefinitionError for a type that is not JSON."""
    try:
        schema = adapter.json_schema()
        require_json(schema, "schema")
    except (PydanticUserError, NotJson) as exc:
        raise DefinitionError(f"{label} has no JSON form: {_cut_first_line(exc)}") from exc
    if schema.get("type") != "object":
        raise DefinitionError(f"{label} is not an object")
    return schema


def _build_result_adapter(annotation: Any, label: str) -> TypeAdapter[Any] | None:
    """Return the adapter of a result. Raise DefinitionError for a type without JSON, before any effect."""
    if annotation is Any:
        return None
    label = f"{label}: its result"
    if annotation is object:
        raise DefinitionError(
            f"{label} can be any object, which has no JSON form: say Any for any JSON"
        )
    adapter = _build(annotation, label)
    try:
        require_json(adapter.json_schema(mode="serialization"), "schema")
    except (PydanticUserError, NotJson) as exc:
        raise DefinitionError(f"{label} has no JSON form: {_cut_first_line(exc)}") from exc
    return adapter


def _build(kind: Any, label: str) -> TypeAdapter[Any]:
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(kind)
        adapter.json_schema()
    except (PydanticSchemaGenerationError, PydanticUserError, SchemaError) as exc:
        raise DefinitionError(f"{label} has no JSON form: {_cut_first_line(exc)}") from exc
    return adapter


def _cut_first_line(exc: Exception) -> str:
    return str(exc).splitlines()[0]

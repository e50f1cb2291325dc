"""Reads a typed function as a JSON Schema of its arguments, or says why it has none."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, TypeAdapter
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from typing_extensions import TypedDict, is_typeddict

from agents.errors import DefinitionError
from runtime.core.digest import require_json
from runtime.core.errors import NotJson

JSON_SCALARS = (str, int, float, bool, NoneType)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    arguments: TypeAdapter[dict[str, Any]]
    schema: dict[str, Any]
    result_schema: dict[str, Any] | None
    defaults: dict[str, Any]
    wants_context: bool


def read_signature(function: Callable[..., Any], where: str, *, context: type) -> Signature:
    """The arguments of `function` as a schema that forbids any other, without a first `context`."""
    if inspect.iscoroutinefunction(function):
        raise DefinitionError(f"{where} is async: tools are plain functions, called in a thread")
    hints = _hints(function, where)
    parameters = list(inspect.signature(function).parameters.values())
    wants_context = bool(parameters) and hints.get(parameters[0].name) is context
    parameters = parameters[1:] if wants_context else parameters
    for parameter in parameters:
        _require_plain(parameter, hints, where, context)
    _require_json_result(hints.get("return", Any), where)
    defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
    _require_json_defaults(defaults, where)
    adapter = _adapter(
        function.__name__, {p.name: hints[p.name] for p in parameters}, defaults, where
    )
    schema = json_schema_of(adapter, where)
    schema.setdefault("properties", {})
    for name, value in defaults.items():
        schema["properties"][name]["default"] = value
    return Signature(
        arguments=adapter,
        schema=schema,
        result_schema=_result_schema(hints, where),
        defaults=defaults,
        wants_context=wants_context,
    )


def json_schema_of(adapter: TypeAdapter[Any], where: str) -> dict[str, Any]:
    """The JSON Schema of an adapter. Raises DefinitionError for what is not JSON."""
    try:
        schema = adapter.json_schema()
        require_json(schema, "schema")
    except (PydanticUserError, NotJson) as exc:
        raise DefinitionError(f"{where} has no JSON form: {_first_line(exc)}") from exc
    if schema.get("type") != "object":
        raise DefinitionError(f"{where} is not an object")
    return schema


def _hints(function: Callable[..., Any], where: str) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as exc:
        raise DefinitionError(f"{where}: a type is not known: {exc}") from exc


def _require_plain(
    parameter: inspect.Parameter, hints: dict[str, Any], where: str, context: type
) -> None:
    if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
        raise DefinitionError(f"{where}: argument {parameter.name} cannot be given by name")
    if parameter.name not in hints:
        raise DefinitionError(f"{where}: argument {parameter.name} has no type")
    if hints[parameter.name] is context:
        raise DefinitionError(f"{where}: the context must be the first parameter")
    _build(hints[parameter.name], f"{where}: argument {parameter.name}")


def _require_json_defaults(defaults: dict[str, Any], where: str) -> None:
    for name, value in defaults.items():
        try:
            require_json(value, f"the default of {name}")
        except NotJson as exc:
            raise DefinitionError(f"{where}: {exc}") from exc


def _require_json_result(annotation: Any, where: str) -> None:
    """A result is journaled as it is, so its type must be JSON already: better told now than after the effect."""
    if not _is_json_type(annotation):
        raise DefinitionError(f"{where} returns {annotation}, which is not JSON")


def _result_schema(hints: dict[str, Any], where: str) -> dict[str, Any] | None:
    """None if the function does not say what it returns."""
    annotation = hints.get("return", Any)
    if annotation is Any:
        return None
    schema = _build(annotation, f"{where}: its result").json_schema()
    require_json(schema, "schema")
    return schema


def _is_json_type(annotation: Any) -> bool:
    if annotation is Any or annotation is None or annotation in JSON_SCALARS:
        return True
    if annotation in (dict, list) or is_typeddict(annotation):
        return True
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _is_json_type(args[0])
    if origin is Literal:
        return all(isinstance(value, JSON_SCALARS) for value in args)
    if origin is dict:
        return args[0] is str and _is_json_type(args[1])
    if origin in (list, Union, UnionType):
        return all(_is_json_type(arg) for arg in args)
    return False


def _adapter(
    name: str, types: dict[str, Any], defaults: dict[str, Any], where: str
) -> TypeAdapter[dict[str, Any]]:
    """A TypedDict and not a model: no argument name can collide with what a model class has."""
    fields = {key: NotRequired[kind] if key in defaults else kind for key, kind in types.items()}
    make: Any = TypedDict  # its types and keys are not known to a type checker
    arguments = make(name, fields)
    arguments.__pydantic_config__ = ConfigDict(extra="forbid")
    return _build(arguments, where)


def _build(kind: Any, where: str) -> TypeAdapter[Any]:
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(kind)
        adapter.json_schema()
    except (PydanticSchemaGenerationError, PydanticUserError) as exc:
        raise DefinitionError(f"{where} has no JSON form: {_first_line(exc)}") from exc
    return adapter


def _first_line(exc: Exception) -> str:
    return str(exc).splitlines()[0]

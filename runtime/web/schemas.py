"""Gives the schemas of the API the fields of the dataclasses that they show or make, so that each is written once."""

from collections.abc import Callable
from dataclasses import fields
from enum import StrEnum
from inspect import getattr_static
from typing import Annotated, Any, TypeVar, get_type_hints

from ninja import Schema
from pydantic import WithJsonSchema, create_model

S = TypeVar("S", bound=Schema)


def fields_of(source: type, names: str = "") -> Callable[[type[S]], type[S]]:
    """Return a decorator that adds the fields of a dataclass to a schema: those named, or all. Properties may be named.

    A field that the schema declares itself stays as declared. The others are required, because an answer has them all.
    """

    def decorate(schema: type[S]) -> type[S]:
        selected = names.split() or [field.name for field in fields(source)]
        declared = schema.model_fields
        return _extend(
            schema,
            {name: (_type_of(source, name), ...) for name in selected if name not in declared},
        )

    return decorate


def accepts(definition: type) -> Callable[[type[S]], type[S]]:
    """Return a decorator that adds the fields of a definition that people send, with their rules.

    They accept any value: the act itself names the wrong one.
    """
    added: dict[str, Any] = {
        field.name: (
            Annotated[Any, WithJsonSchema({**field.metadata["schema"]})],
            field.metadata["default"],
        )
        for field in fields(definition)
        if field.metadata
    }
    return lambda schema: _extend(schema, added)


def _extend(schema: type[S], added: dict[str, Any]) -> type[S]:
    """Return the schema with more fields, under its own name, which clients are generated from."""
    return create_model(
        schema.__name__,
        __base__=schema,
        __doc__=schema.__doc__,
        __module__=schema.__module__,
        **added,
    )


def _type_of(source: type, name: str) -> Any:
    member = getattr_static(source, name, None)
    is_property = isinstance(member, property)
    hint = get_type_hints(member.fget)["return"] if is_property else get_type_hints(source)[name]
    return str if isinstance(hint, type) and issubclass(hint, StrEnum) else hint

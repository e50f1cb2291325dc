"""Gives the schemas of the API the fields of the dataclasses that they show or make, so that each is written once."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from enum import StrEnum
from inspect import getattr_static
from typing import Annotated, Any, TypeVar, get_type_hints

from ninja import Schema
from pydantic import WithJsonSchema, create_model

S = TypeVar("S", bound=Schema)


def with_fields_of(source: type, names: str = "") -> Callable[[type[S]], type[S]]:
    """Return a decorator that adds the fields of a dataclass to a schema: those named, or all. Properties may be named.

    A field that the schema declares itself stays as declared. The others are required, because an answer has them all.
    """
    added = {}
    for name in names.split() or [field.name for field in fields(source)]:
        member = getattr_static(source, name, None)
        is_property = isinstance(member, property)
        hints = get_type_hints(member.fget if is_property else source)
        hint = hints["return" if is_property else name]
        is_enum = isinstance(hint, type) and issubclass(hint, StrEnum)
        added[name] = (str if is_enum else hint, ...)
    return with_fields(added)


def with_sent_fields(definition: type) -> Callable[[type[S]], type[S]]:
    """Return a decorator that adds the fields of a definition that people send, with their rules.

    They accept any value: the act itself names the wrong one.
    """
    sent = {field.name: field.metadata for field in fields(definition) if field.metadata}
    return with_fields(
        {
            name: (Annotated[Any, WithJsonSchema({**rule["schema"]})], rule["default"])
            for name, rule in sent.items()
        }
    )


def with_fields(added: Mapping[str, tuple[Any, Any]]) -> Callable[[type[S]], type[S]]:
    """Return a decorator that adds these types and defaults to a schema that does not declare them itself."""

    def extend(schema: type[S]) -> type[S]:
        missing: dict[str, Any] = {
            name: entry for name, entry in added.items() if name not in schema.model_fields
        }
        # Generated clients name their classes after it, so the class keeps its name.
        return create_model(
            schema.__name__,
            __base__=schema,
            __doc__=schema.__doc__,
            __module__=schema.__module__,
            **missing,
        )

    return extend

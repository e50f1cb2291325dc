"""Upgrades documents of older schemas to the present one, and refuses those of newer ones.

One number, `schema`, stands in each document: an entry, a continuation, or the manifest of an exported run. An engineer
who changes what a stored field means, or its default, raises SCHEMA and adds an upcaster here.
"""

from collections.abc import Callable
from typing import Any

from runtime.core.values.errors import NewerSchema, Unreadable

SCHEMA = 1

Document = dict[str, Any]
# By older schema: converts a document of it to the schema after it. It tells an entry by its `events`.
UPCASTERS: dict[int, Callable[[Document], Document]] = {}


def upcast(document: object) -> Document:
    """Return a document in the present schema. Raises Unreadable or NewerSchema."""
    if not isinstance(document, dict) or not isinstance(schema := document.get("schema"), int):
        raise Unreadable("no schema number")
    if schema > SCHEMA:
        raise NewerSchema(schema)
    for number in range(schema, SCHEMA):
        if number not in UPCASTERS:
            raise Unreadable(f"schema {number} is unknown")
        document = UPCASTERS[number](document)
    return document


def readable_pattern() -> str:
    """Return how each readable text begins, as a regular expression of Postgres and of Python."""
    return rf'^\{{"schema": ?({"|".join(map(str, (*UPCASTERS, SCHEMA)))}),'

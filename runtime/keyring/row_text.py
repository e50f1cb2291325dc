"""Writes the text of a row that is signed, or under a MAC."""

from collections.abc import Mapping
from datetime import UTC, datetime
from uuid import UUID

from runtime.core.values.json_values import canonical


def row_text(kind: str, values: Mapping[str, object]) -> str:
    """Return these values as canonical JSON (RFC 8785). `kind` differs per table, so no row passes for another's.

    Raise ValueError, TypeError or AttributeError for values of other types.
    """
    plain = {name: _plain(value) for name, value in values.items()}
    return canonical({"kind": kind, **plain}).decode()


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return str(value) if isinstance(value, UUID) else value

"""Reads stored rows without the ORM, because each decision needs them and the ORM costs more than Postgres.

Columns are named one by one. A later release may add others while this one runs, and a prepared statement whose
result gets another column fails.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pydantic_core
from django.core.exceptions import ValidationError
from django.db import DEFAULT_DB_ALIAS, models

from approvals.models import Approval

_JSON = ("path", "origin", "excluded", "voted", "voted_for", "open_to", "readers")


def names_of(model: type[models.Model]) -> tuple[str, ...]:
    """Name every column of a model's table, in one order."""
    return tuple(field.attname for field in model._meta.concrete_fields)  # noqa: SLF001 - its documented API


_NAMES = names_of(Approval)
# The ORM asks each field of each new row, a tenth of the time of a gate that opens.
_DEFAULTS = {
    field.attname: field.default if field.has_default() else None
    for field in Approval._meta.concrete_fields  # noqa: SLF001
}
# The columns of `approvals_approval r`.
COLUMNS = ", ".join(f"r.{name}::text" if name in _JSON else f"r.{name}" for name in _NAMES)


def make(**values: Any) -> Approval:
    """Make a request of the values of some columns; the others are empty, or have their plain default."""
    return Approval.from_db(
        DEFAULT_DB_ALIAS, _NAMES, [values.get(name, _DEFAULTS[name]) for name in _NAMES]
    )


def read(values: Sequence[Any]) -> Approval:
    """Make a request of the values of COLUMNS."""
    values = [
        pydantic_core.from_json(value) if name in _JSON and value is not None else value
        for name, value in zip(_NAMES, values, strict=True)
    ]
    return Approval.from_db(DEFAULT_DB_ALIAS, _NAMES, values)


def from_json(row: Mapping[str, Any]) -> Approval:
    """Make a request of the JSON object of its row. Raises ValueError if a value is of another type."""
    fields = Approval._meta.concrete_fields  # noqa: SLF001
    try:
        # A column of a later release is None.
        values = [field.to_python(row.get(field.column or "")) for field in fields]
    except ValidationError as exc:
        raise ValueError(exc.messages[0]) from exc
    return Approval.from_db(DEFAULT_DB_ALIAS, _NAMES, values)


def texts(value: object) -> list[str]:
    """Return the texts of a stored list, and skip other values: the column may have been tampered with."""
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []

"""Rows as they are stored, read without the ORM: on the way of each decision it costs more than Postgres.

Columns are named one by one. A later release may add others while this one runs, and a prepared statement whose
result gets another column fails.
"""

import json
from collections.abc import Sequence
from typing import Any

from django.db import models
from psycopg import Cursor

from approvals.models import Request

_JSON = ("path", "origin", "excluded")


def columns_of(model: type[models.Model], *, of: str, json: Sequence[str] = ()) -> str:
    """Every column of a model's table, which the statement calls `of`; those of JSON as text."""
    names = (field.attname for field in model._meta.concrete_fields)  # noqa: SLF001 - its documented API
    return ", ".join(f"{of}.{name}::text" if name in json else f"{of}.{name}" for name in names)


# Of `approvals_request r`.
COLUMNS = columns_of(Request, of="r", json=_JSON)


def read(cursor: Cursor[Any], values: Sequence[Any], *, skip: int) -> Request:
    """The request in a row that has COLUMNS after `skip` others."""
    request = Request()
    names = [column.name for column in cursor.description or ()]
    for name, value in zip(names[skip:], values[skip:], strict=True):
        setattr(request, name, json.loads(value) if name in _JSON else value)
    return request

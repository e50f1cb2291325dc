"""Requests as they are stored, read without the ORM: on the way of each decision it costs more than Postgres."""

import json
from collections.abc import Sequence
from typing import Any

from psycopg import Cursor

from approvals.models import Request

_JSON = ("path", "origin", "excluded")

# Every column of `approvals_request r`; the JSON ones once more as text, at the end.
COLUMNS = ", ".join(("r.*", *(f"r.{name}::text" for name in _JSON)))


def read(cursor: Cursor[Any], values: Sequence[Any], *, skip: int) -> Request:
    """The request in a row that has COLUMNS after `skip` others."""
    request = Request()
    names = [column.name for column in cursor.description or ()]
    for name, value in zip(names[skip:], values[skip:], strict=True):
        setattr(request, name, value)
    for name in _JSON:
        setattr(request, name, json.loads(getattr(request, name)))
    return request

"""Bounds a reading to the first pending requests by deadline, so that it costs the same beside any number of them.

The window is a WITH query under the name of the table: the statement after it reads only the rows in it.
"""

from typing import Any

from django.core.exceptions import EmptyResultSet
from django.db.models import F, QuerySet

from approvals.models import Approval

WINDOW = 5_000
# Columns that can be long, and that no search and no order needs.
_LONG = (
    "args",
    "schema",
    "result_schema",
    "preview",
    "statement",
    "signature",
    "reason",
    "edited",
    "rule",
)


def of(rows: QuerySet[Approval], *, whole: bool = False) -> tuple[str, tuple[Any, ...]]:
    """Return the WITH query for the first WINDOW of these rows, and its parameters; `whole` with all columns.

    Raises EmptyResultSet if no row can be among them.
    """
    by_deadline = rows.order_by(F("expires_at").asc(nulls_last=True), "created_at", "id")
    first = by_deadline if whole else by_deadline.defer(*_LONG)
    sql, given = first[:WINDOW].query.sql_with_params()
    return f"WITH approvals_approval AS ({sql})", given


def read(rows: QuerySet[Approval], chosen: QuerySet[Approval]) -> list[Approval]:
    """Read those requests that `chosen` selects among the first WINDOW of these rows, in its order."""
    window, given = of(rows, whole=True)
    sql, parameters = chosen.query.sql_with_params()
    return list(Approval.objects.raw(f"{window} {sql}", (*given, *parameters)))


def values(what: str, *queries: QuerySet[Approval, Any]) -> tuple[str, list[Any]]:
    """Write a SELECT list with one value of each query's rows, NULL for a query without rows, and its parameters."""
    selected, given = [], list[Any]()
    for query in queries:
        try:
            sql, parameters = query.query.sql_with_params()
        except EmptyResultSet:
            selected.append("NULL")
            continue
        selected.append(f"(SELECT {what} FROM ({sql}) AS found)")
        given += parameters
    return ", ".join(selected), given

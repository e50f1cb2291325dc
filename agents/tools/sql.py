"""Queries of agents on a Postgres database, which they can only read."""

import os
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any

import psycopg
from psycopg.errors import Error, QueryCanceled
from pydantic import Field

from agents.errors import DefinitionError, ToolError
from agents.sdk import FailureCause, NotDone, ToolContext, mistakes, tool
from agents.sdk.spec import Seconds, ToolSpec
from runtime.core.values.json_values import measure_size
from runtime.core.values.texts import clean_text

MAX_QUERY = 10_000  # characters
MAX_ROWS = 1_000
MAX_ANSWER = 256 * 1024  # bytes of all rows, as JSON

Query = Annotated[
    str,
    Field(
        min_length=1,
        max_length=MAX_QUERY,
        description="one SELECT of Postgres, with %s for each value",
    ),
]
Values = Annotated[list[str | int | float | bool | None], Field(max_length=100)]

TOO_LARGE = f"a row has more than {MAX_ANSWER} bytes"
# Postgres refuses a larger row before it sends it: the cast fails, and only then is it evaluated.
_BOUNDED = f"""
SELECT * FROM ({{query}}
) AS signoff_row WHERE CASE WHEN octet_length(signoff_row::text) <= {MAX_ANSWER} THEN true
  ELSE (left(signoff_row::text, 0) || '{TOO_LARGE}')::boolean END
"""

# The tables and views that the role could change; a superuser could also read the server's files.
_WRITABLE = """
SELECT (SELECT rolsuper FROM pg_roles WHERE rolname = current_user), count(*) FROM pg_class
WHERE relnamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)
  AND has_table_privilege(oid, 'INSERT, UPDATE, DELETE, TRUNCATE')
"""


@mistakes.record_mistakes
def sql_query(
    url_env: str,
    *,
    name: str = "sql_query",
    description: str,
    max_rows: Annotated[int, Field(ge=1, le=MAX_ROWS)] = 200,
    seconds: Seconds = 10.0,
    approval: bool = False,
) -> ToolSpec:
    """Make a tool with which an agent reads a Postgres database. It gives one SELECT, and the values in it apart.

    `url_env` names the environment variable of the workers that holds the database's URL, so that no password is in
    the code. The URL's role must be unable to change any table; if it can, each call is refused. The query runs in a
    read-only transaction for at most `seconds`, and returns at most `max_rows` rows (up to 1,000) and 256 KB; a larger
    row is refused. The answer is `{"columns": […], "rows": [[…]], "more": …}`, where `more` says that rows were left
    out. Numbers of any precision, dates and other types that JSON has not are texts. Tell the model the tables in
    `description`. Raises DefinitionError if the definition is invalid.
    """
    label = f"tool {name}"
    if not url_env.isidentifier():
        raise DefinitionError(f"{label}: url_env must be the name of an environment variable")

    def read(context: ToolContext, query: Query, values: Values) -> dict[str, Any]:
        return _read(context, url_env, query, values, max_rows=max_rows, seconds=seconds)

    read.__name__, read.__doc__ = name, description
    return tool(
        effect="read",
        approval=approval,
        sentence="Read: {query} with {values}",
        deadline=seconds + 5,
    )(read)


def _read(
    context: ToolContext,
    url_env: str,
    query: str,
    values: Sequence[Any],
    *,
    max_rows: int,
    seconds: float,
) -> dict[str, Any]:
    url = os.environ.get(url_env)
    if not url:
        raise NotDone(f"the workers have no {url_env}", cause=FailureCause.SETUP)
    try:
        connection = psycopg.connect(
            url, connect_timeout=max(2, int(min(seconds, context.remaining())))
        )
    except Error as exc:
        raise NotDone(
            f"the database of {url_env} cannot be reached", cause=FailureCause.NETWORK
        ) from exc
    with connection:
        connection.read_only = True
        superuser, tables = connection.execute(_WRITABLE).fetchone() or (True, 0)
        if superuser or tables:
            can = "is a superuser" if superuser else f"can change {tables} tables or views"
            raise NotDone(
                f"the role of {url_env} {can}: give it a role that only reads",
                cause=FailureCause.SETUP,
            )
        connection.execute(
            "SELECT set_config('statement_timeout', %s, true)", [str(int(seconds * 1000))]
        )
        try:
            # A cursor of the server takes one SELECT or VALUES and nothing else, and sends the rows that are fetched.
            # A query that is one by itself does not end the brackets around it, so each of its rows is bounded.
            statement = query.rstrip().removesuffix(";")
            with connection.cursor("alone") as cursor:
                cursor.execute(statement, values)
            with connection.cursor("answer") as cursor:
                cursor.execute(_BOUNDED.format(query=statement), values)
                rows = cursor.fetchmany(max_rows + 1)
                columns = [column.name for column in cursor.description or ()]
        except QueryCanceled as exc:
            raise ToolError(f"query: it took longer than {seconds:g} seconds") from exc
        except Error as exc:
            if TOO_LARGE in str(exc):
                raise ToolError(f"query: {TOO_LARGE}") from exc
            raise ToolError(f"query: {clean_text(str(exc))}") from exc
        connection.rollback()  # a commit would send the notifications of the query
    included: list[list[Any]] = []
    size = 0
    for row in rows[:max_rows]:
        row_values = [_encode_value(value) for value in row]
        size += measure_size(row_values)
        if size > MAX_ANSWER:
            break
        included.append(row_values)
    return {"columns": columns, "rows": included, "more": len(included) < len(rows)}


def _encode_value(value: Any) -> Any:
    """Return a value of Postgres as JSON."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | float):
        return value if abs(value) <= 2**53 - 1 else str(value)  # RFC 7493; a text for NaN too
    if isinstance(value, dict):
        return {str(key): _encode_value(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_encode_value(item) for item in value]
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return format(value, "f")
    return bytes(value).hex() if isinstance(value, bytes | memoryview) else str(value)

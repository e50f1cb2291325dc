"""What a statement costs Postgres: the blocks that it looks at."""

import json
from collections.abc import Callable
from typing import Any

from django.db import connection
from django.test.utils import CaptureQueriesContext


def blocks_of(cursor: Any, sql: str, parameters: Any = None) -> int:
    """Count the blocks of one statement. `cursor` is Django's, or a connection of psycopg."""
    found = cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}", parameters)
    ((plan,),) = found.fetchall()
    top = (json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]
    return int(top["Shared Hit Blocks"] + top["Shared Read Blocks"])


def blocks_of_approvals(act: Callable[[], object]) -> int:
    """Count the blocks of those queries of an act that read approvals."""
    with CaptureQueriesContext(connection) as made:
        act()
    queries = [query["sql"] for query in made if "approvals_approval" in query["sql"]]
    with connection.cursor() as cursor:
        return sum(blocks_of(cursor, sql) for sql in queries)

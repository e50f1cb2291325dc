"""Copies the requests of a run, their decisions and audit, for the file that an auditor gets."""

import json
from typing import Any
from uuid import UUID

from django.db import connection

# Each table with the column of the run, or of a request of the run. The names are those of columns.
_OF_RUN = {"approvals_approval": "run_id", "approvals_auditentry": "run_id"}
_OF_REQUEST = ("approvals_vote", "approvals_comment", "approvals_handover", "approvals_reviewtime")


def of(run: UUID) -> dict[str, Any]:
    """Return the rows of each table as JSON objects, and the schemas of the tools by digest."""
    found = {
        table: _rows(
            f"SELECT to_jsonb(t)::text FROM {table} t WHERE {column} = %s ORDER BY t::text", run
        )
        for table, column in _OF_RUN.items()
    }
    for table in _OF_REQUEST:
        found[table] = _rows(
            f"""
            SELECT to_jsonb(t)::text FROM {table} t
            WHERE approval_id IN (SELECT id FROM approvals_approval WHERE run_id = %s) ORDER BY t::text
            """,
            run,
        )
    found["approvals_toolschema"] = _rows(
        """
        SELECT to_jsonb(t)::text FROM approvals_toolschema t
        WHERE digest IN (SELECT schema FROM approvals_approval WHERE run_id = %s) ORDER BY digest
        """,
        run,
    )
    return found


def _rows(statement: str, run: UUID) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(statement, [run])
        return [json.loads(row) for (row,) in cursor.fetchall()]

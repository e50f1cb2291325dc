"""Stores the gates at which runs wait for people, and closes one with a decision, which wakes its run.

Of two decisions only one finds the gate open. Its statement writes all or nothing. It locks the run's row first, so a
decision is ordered before or after each step. It waits for no lock: a caller that must wait locks the run's row first
and then settles again.
"""

from collections.abc import Sequence
from datetime import datetime
from functools import cache
from uuid import UUID

import psycopg
from pydantic_core import to_json

from runtime.core.run.continuation import Pending
from runtime.core.values.enums import Decision
from runtime.errors import GateNotOpen
from runtime.ports.approvals import StatementPart
from runtime.store import pool, runs
from runtime.store.pool import Connection
from runtime.store.tables import signals

# Parts of the step statement: gates that open with it, and decided gates whose decisions it applies.
OPEN = """
    INSERT INTO runtime_gate (id, run_id, kind, frame, call, tool, path, state)
    SELECT g.id, run.id, g.kind, g.frame, g.call, g.tool, g.path, 'open'
    FROM run, json_to_recordset(%(g_opened)s::json)
        AS g(id uuid, kind text, frame text, call text, tool text, path jsonb)
"""
TAKE_EFFECT = """
    UPDATE runtime_gate SET state = 'effective'
    WHERE id = ANY(%(g_settled)s::uuid[]) AND state = 'decided' AND run_id = (SELECT id FROM run)
"""
CLOSE = """
    UPDATE runtime_gate SET state = 'closed'
    WHERE id = ANY(%(g_closed)s::uuid[]) AND state IN ('open', 'decided') AND run_id = (SELECT id FROM run)
"""

# The part of the statement that settles a gate: open → decided, if no other decision was faster.
DECIDE = """
    UPDATE runtime_gate SET state = 'decided', decided_at = clock_timestamp()
    WHERE id = %(gate)s AND state = 'open' AND run_id = (SELECT id FROM notified) RETURNING run_id
"""


def build_step_parameters(
    opening: tuple[Pending, ...], settled: tuple[UUID, ...], closed: tuple[UUID, ...]
) -> dict[str, object]:
    """Return the parameters of the parts."""
    return {
        "g_opened": to_json(
            [
                {
                    "id": pending.gate,
                    "kind": pending.kind,
                    "frame": pending.frame,
                    "call": pending.call,
                    "tool": pending.path[-1] if pending.call else "",
                    "path": pending.path,
                }
                for pending in opening
            ]
        ).decode(),
        "g_settled": pool.array(settled),
        "g_closed": pool.array(closed),
    }


def find_run(connection: Connection, gate: UUID) -> UUID:
    """Return the run of a gate. Raises GateNotOpen if it does not exist."""
    row = connection.execute("SELECT run_id FROM runtime_gate WHERE id = %s", (gate,)).fetchone()
    if row is None:
        raise GateNotOpen("there is no such gate")
    run: UUID = row[0]
    return run


def reopen(connection: Connection, gate: UUID) -> None:
    """Reopen a decided gate. The caller has locked the run's row and withdrawn the decision. Raises GateNotOpen."""
    cursor = connection.execute(
        "UPDATE runtime_gate SET state = 'open', decided_at = NULL WHERE id = %s AND state = 'decided'",
        (gate,),
    )
    if cursor.rowcount != 1:
        raise GateNotOpen


def close_decided(connection: Connection, gates: list[UUID]) -> None:
    """Close decided gates. The caller has locked the run's row and withdrawn the decisions."""
    connection.execute(
        "UPDATE runtime_gate SET state = 'closed' WHERE id = ANY(%s) AND state = 'decided'",
        (gates,),
    )


def close_open(connection: Connection, run: UUID) -> list[UUID]:
    """Close every open gate of a run. The caller has locked the run's row."""
    rows = connection.execute(
        "UPDATE runtime_gate SET state = 'closed' WHERE run_id = %s AND state = 'open' RETURNING id",
        (run,),
    )
    return [row[0] for row in rows.fetchall()]


def settle(
    connection: Connection,
    *,
    gate: UUID,
    decision: Decision,
    effective_at: datetime | None,
    extra_statements: Sequence[StatementPart] = (),
) -> UUID:
    """Settle the gate, with the parts that approvals adds, and return its run.

    Raises GateNotOpen, with nothing written, also if the run has ended, if a required part writes no row, or if
    another transaction was faster.
    """
    statement = _build_statement(
        tuple([(part.name, part.sql) for part in extra_statements]),
        tuple([part.name for part in extra_statements if part.required]),
    )
    parameters = {
        "gate": gate,
        "kind": signals.GATE_DECIDED,
        "body": signals.encode_decision(gate, decision),
        "effective_at": effective_at,
    }
    for statement_part in extra_statements:
        parameters |= statement_part.parameters
    try:
        row = pool.fetch_row(connection, statement, parameters)
    except psycopg.errors.DivisionByZero as exc:
        raise GateNotOpen from exc
    except psycopg.errors.UniqueViolation as exc:
        if exc.diag.constraint_name not in {part.overtaken for part in extra_statements}:
            raise
        raise GateNotOpen from exc
    assert row is not None  # a SELECT without FROM has one row
    run: UUID = row[0]
    return run


@cache
def _build_statement(parts: tuple[tuple[str, str], ...], required: tuple[str, ...]) -> str:
    """Build the statement. `run` is the run's row if its gate was open.

    A required part that writes no row divides by zero, so the statement fails.
    """
    tables = "".join(f", {name} AS ({sql})" for name, sql in parts)
    counts = " * ".join(f"(SELECT count(*) FROM {name})" for name in ("run", *required))
    return f"""
        WITH notified AS ({runs.NOTIFY_SIGNAL}), decided AS ({DECIDE}), sent AS ({signals.SEND}),
            run AS (SELECT run_id AS id FROM decided){tables}
        SELECT (SELECT id FROM run), 1 / ({counts})
    """

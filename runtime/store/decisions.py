"""Closes an open gate with a decision and wakes its run, in one statement that writes all of it or nothing.

Of two decisions only one finds the gate open. The statement locks the run's row first, so a decision is ordered
before or after each step. It waits for no lock: a caller that must wait locks the run's row first and then settles
again.
"""

from collections.abc import Sequence
from datetime import datetime
from functools import cache
from uuid import UUID

import psycopg

from runtime.core.values.enums import Decision
from runtime.errors import GateNotOpen
from runtime.ports.approvals import StatementPart
from runtime.store import pool, runs
from runtime.store.pool import Connection
from runtime.store.tables import gates, signals


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
    statement = _statement(
        tuple([(part.name, part.sql) for part in extra_statements]),
        tuple([part.name for part in extra_statements if part.required]),
    )
    parameters = {
        "gate": gate,
        "kind": signals.GATE_DECIDED,
        "body": signals.body_of(gate, decision),
        "effective_at": effective_at,
    }
    for part in extra_statements:
        parameters |= part.parameters
    try:
        row = pool.row(connection, statement, parameters)
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
def _statement(lent: tuple[tuple[str, str], ...], required: tuple[str, ...]) -> str:
    """Build the statement. `run` is the run's row if its gate was open.

    A required part that writes no row divides by zero, so the statement fails.
    """
    tables = "".join(f", {name} AS ({sql})" for name, sql in lent)
    counts = " * ".join(f"(SELECT count(*) FROM {name})" for name in ("run", *required))
    return f"""
        WITH notified AS ({runs.NOTIFY_SIGNAL}), decided AS ({gates.DECIDE}), sent AS ({signals.SEND}),
            run AS (SELECT run_id AS id FROM decided){tables}
        SELECT (SELECT id FROM run), 1 / ({counts})
    """

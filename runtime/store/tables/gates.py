"""Stores the gates at which runs wait for people."""

import json
from dataclasses import dataclass
from uuid import UUID

from runtime.core.run.continuation import Pending
from runtime.errors import GateNotOpen
from runtime.store.pool import Connection

# Parts of the step statement: gates that open with it, and decided gates whose decisions it applies.
OPEN = """
    INSERT INTO runtime_gate (id, run_id, kind, frame, call, tool, path, state)
    SELECT g.id, run.id, g.kind, g.frame, g.call, g.tool, g.path, 'open'
    FROM run, json_to_recordset(%(g_opened)s::json)
        AS g(id uuid, kind text, frame text, call text, tool text, path jsonb)
"""
TAKE_EFFECT = """
    UPDATE runtime_gate SET state = 'effective'
    WHERE id = ANY(%(g_settled)s) AND state = 'decided' AND run_id = (SELECT id FROM run)
"""
CLOSE = """
    UPDATE runtime_gate SET state = 'closed'
    WHERE id = ANY(%(g_closed)s) AND state IN ('open', 'decided') AND run_id = (SELECT id FROM run)
"""

# The part of the statement that settles a gate: open → decided, if no other decision was faster.
DECIDE = """
    UPDATE runtime_gate SET state = 'decided', decided_at = clock_timestamp()
    WHERE id = %(gate)s AND state = 'open' AND run_id = (SELECT id FROM notified) RETURNING run_id
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRun:
    """The run of a gate."""

    gate: UUID
    run: UUID


def parameters(
    opened: tuple[Pending, ...], settled: tuple[UUID, ...], closed: tuple[UUID, ...]
) -> dict[str, object]:
    """Return the parameters of the parts."""
    return {
        "g_opened": json.dumps([_document(pending) for pending in opened]),
        "g_settled": list(settled),
        "g_closed": list(closed),
    }


def _document(pending: Pending) -> dict[str, object]:
    return {
        "id": str(pending.gate),
        "kind": str(pending.kind),
        "frame": pending.frame,
        "call": pending.call,
        "tool": pending.path[-1] if pending.call else "",
        "path": pending.path,
    }


def find(connection: Connection, gate: UUID) -> GateRun:
    """Return the place of a gate. Raises GateNotOpen if it does not exist."""
    row = connection.execute("SELECT run_id FROM runtime_gate WHERE id = %s", (gate,)).fetchone()
    if row is None:
        raise GateNotOpen("there is no such gate")
    return GateRun(gate=gate, run=row[0])


def reopen(connection: Connection, gate: UUID) -> None:
    """Reopen a decided gate. The caller has locked the run's row and withdrawn the decision. Raises GateNotOpen."""
    done = connection.execute(
        "UPDATE runtime_gate SET state = 'open', decided_at = NULL WHERE id = %s AND state = 'decided'",
        (gate,),
    )
    if done.rowcount != 1:
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

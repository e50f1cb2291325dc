"""Spent approvals: one row for each attempt that used an approval, kept apart from the run's rows.

The step that records the intent of an attempt adds its row. If the run is restored to an earlier state, the primary key
refuses the same attempt under the same gate, and the run is parked. Web and workers may add rows but not change or
delete them; the `ledger` guards against the owner of the table.
"""

from uuid import UUID

from runtime.store.pool import Connection
from runtime.store.tables import ledger
from runtime.store.tables.ledger import Spend

CONSTRAINT = "runtime_usedapproval_pkey"

# The part of the step statement.
SPEND = """
    INSERT INTO runtime_usedapproval (gate, attempt, run_id)
    SELECT s.gate, s.attempt, run.id
    FROM run, unnest(%(s_gates)s::uuid[], %(s_attempts)s::int[]) AS s(gate, attempt)
"""


def parameters(spends: tuple[Spend, ...]) -> dict[str, object]:
    """Return the parameters of the part."""
    return {
        "s_gates": [gate for gate, _ in spends],
        "s_attempts": [attempt for _, attempt in spends],
    }


def missing(connection: Connection, run: UUID | None = None) -> list[str]:
    """List the attempts in the ledger that the table lacks, of this run or of all; none without a ledger.

    A line is written after its row was committed, so call this outside a transaction. Raise LedgerBroken, KeyMissing,
    OSError.
    """
    noted = [spend for owner, spend in ledger.all_spent() if run in (None, owner)]
    rows = connection.execute(
        """
        SELECT gate, attempt FROM unnest(%(s_gates)s::uuid[], %(s_attempts)s::int[]) AS noted(gate, attempt)
        WHERE NOT EXISTS (SELECT FROM runtime_usedapproval AS s
            WHERE s.gate = noted.gate AND s.attempt = noted.attempt)
        """,
        parameters(tuple(noted)),
    )
    return [f"attempt {attempt} under the approval at gate {gate}" for gate, attempt in rows]

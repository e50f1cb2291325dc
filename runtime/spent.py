"""The keeper of spent approvals: each attempt that an approval was used for, once for ever, apart from the run's rows.

The step that records the intent of an attempt adds its row. Should the run be put back to before that, the same
attempt under the same gate is refused by the primary key, and the run is parked. Web and workers may add rows and
neither change nor delete them; against the owner of the table there is the `ledger`.
"""

from uuid import UUID

from runtime import ledger
from runtime.database import Connection
from runtime.ledger import Spend

CONSTRAINT = "runtime_spent_pkey"

# The part of the step statement.
SPEND = """
    INSERT INTO runtime_spent (gate, attempt, run_id)
    SELECT s.gate, s.attempt, run.id
    FROM run, unnest(%(s_gates)s::uuid[], %(s_attempts)s::int[]) AS s(gate, attempt)
"""


def parameters(spends: tuple[Spend, ...]) -> dict[str, object]:
    return {
        "s_gates": [gate for gate, _ in spends],
        "s_attempts": [attempt for _, attempt in spends],
    }


def missing(connection: Connection, run: UUID | None = None) -> list[str]:
    """What the ledger says was spent, by this run or by any, and the table does not.

    Each line is noted after its row was committed: outside a transaction nothing of now is missing. Raises
    LedgerBroken, KeyMissing, OSError; empty without a ledger.
    """
    noted = [spend for owner, spend in ledger.all_spent() if run in (None, owner)]
    rows = connection.execute(
        """
        SELECT gate, attempt FROM unnest(%(s_gates)s::uuid[], %(s_attempts)s::int[]) AS noted(gate, attempt)
        WHERE NOT EXISTS (SELECT FROM runtime_spent AS s
            WHERE s.gate = noted.gate AND s.attempt = noted.attempt)
        """,
        parameters(tuple(noted)),
    )
    return [f"attempt {attempt} under the approval at gate {gate}" for gate, attempt in rows]

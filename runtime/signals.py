"""The signals' keeper: durable messages to a run, and the mailbox count that makes none of them late.

Whoever writes a signal raises the run's mailbox in the same transaction. A step that takes a signal
up, or lets go of the run, requires the mailbox to be what it was when the signals were read. So a
signal is either seen by the step or makes the step fail and read again.
"""

import json
from dataclasses import dataclass
from uuid import UUID

from runtime.core.decisions import Decision, Verdict
from runtime.database import Connection

GATE_DECIDED = "gate_decided"

# The part of the step statement that takes signals up.
CONSUME = """
    DELETE FROM runtime_signal WHERE id = ANY(%(signals)s) AND run_id = (SELECT id FROM run)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateDecidedSignal:
    """Somebody decided a gate."""

    id: int
    gate: UUID
    decision: Decision


def send_decision(connection: Connection, *, run: UUID, gate: UUID, decision: Decision) -> None:
    """Write the signal; the caller has raised the mailbox in the same transaction."""
    body = {
        "gate": str(gate),
        "verdict": decision.verdict,
        "by": decision.by,
        "reason": decision.reason,
    }
    connection.execute(
        "INSERT INTO runtime_signal (run_id, kind, body) VALUES (%s, %s, %s)",
        (run, GATE_DECIDED, json.dumps(body)),
    )


def read(connection: Connection, run: UUID) -> tuple[int, tuple[GateDecidedSignal, ...]]:
    """The mailbox count and every signal that is due, in one statement so that they belong together."""
    rows = connection.execute(
        """
        SELECT r.mailbox, s.id, s.body FROM runtime_run r
        LEFT JOIN runtime_signal s ON s.run_id = r.id AND s.effective_at <= clock_timestamp()
        WHERE r.id = %s ORDER BY s.id
        """,
        (run,),
    ).fetchall()
    signals = tuple(_decode(number, body) for _, number, body in rows if number is not None)
    return rows[0][0], signals


def _decode(number: int, body: str) -> GateDecidedSignal:
    document = json.loads(body)
    return GateDecidedSignal(
        id=number,
        gate=UUID(document["gate"]),
        decision=Decision(
            verdict=Verdict(document["verdict"]), by=document["by"], reason=document["reason"]
        ),
    )

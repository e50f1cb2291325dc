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
from runtime.errors import Tampered

GATE_DECIDED = "gate_decided"
CANCEL = "cancel"

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


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelSignal:
    """Somebody ended the run."""

    id: int
    by: str
    reason: str


Signal = GateDecidedSignal | CancelSignal


def send_decision(connection: Connection, *, run: UUID, gate: UUID, decision: Decision) -> None:
    """Write the signal; the caller has raised the mailbox in the same transaction."""
    body = {
        "gate": str(gate),
        "verdict": decision.verdict,
        "by": decision.by,
        "reason": decision.reason,
        "result": decision.result,
    }
    _send(connection, run, GATE_DECIDED, body)


def send_cancel(connection: Connection, *, run: UUID, by: str, reason: str) -> None:
    """Write the signal; the caller has raised the mailbox in the same transaction."""
    _send(connection, run, CANCEL, {"by": by, "reason": reason})


def read(connection: Connection, run: UUID) -> tuple[int, tuple[Signal, ...]]:
    """The mailbox count and every signal that is due, in one statement so that they belong together."""
    rows = connection.execute(
        """
        SELECT r.mailbox, s.id, s.kind, s.body FROM runtime_run r
        LEFT JOIN runtime_signal s ON s.run_id = r.id AND s.effective_at <= clock_timestamp()
        WHERE r.id = %s ORDER BY s.id
        """,
        (run,),
    ).fetchall()
    found = tuple(_decode(number, kind, body) for _, number, kind, body in rows if number)
    return rows[0][0], found


def _send(connection: Connection, run: UUID, kind: str, body: dict[str, object]) -> None:
    connection.execute(
        "INSERT INTO runtime_signal (run_id, kind, body) VALUES (%s, %s, %s)",
        (run, kind, json.dumps(body)),
    )


def _decode(number: int, kind: str, body: str) -> Signal:
    """Raises Tampered for what none of our processes wrote."""
    try:
        document = json.loads(body)
        if kind == CANCEL:
            return CancelSignal(id=number, by=document["by"], reason=document["reason"])
        return GateDecidedSignal(
            id=number,
            gate=UUID(document["gate"]),
            decision=Decision(
                verdict=Verdict(document["verdict"]),
                by=document["by"],
                reason=document["reason"],
                result=document["result"],
            ),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise Tampered(f"signal {number} cannot be read: {exc}") from exc

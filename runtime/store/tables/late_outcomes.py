"""Late outcomes: rows that a worker writes for an attempt when it no longer has the run.

Such a row alone changes nothing. A step that finds the call in doubt journals the outcome; otherwise the row is
evidence. There is one row for each attempt. It is never changed. Its MAC binds it to run, call, attempt and the time
of that attempt's intent, so it cannot be used for another attempt.
"""

import json
import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, Literal
from uuid import UUID

from runtime.keyring import purposes, signatures
from runtime.keyring.signatures import Seal
from runtime.store.pool import Connection

log = logging.getLogger(__name__)

TABLE = "runtime_lateoutcome"
LABEL = "late outcome"  # tells a row from a journal entry under the same key


@dataclass(frozen=True, slots=True, kw_only=True)
class LateOutcomeRow:
    """The late outcome of one attempt. `started_at` is the time of its intent, `at` the time of recording.

    `result` is the call's result, `error` its error.
    """

    run: UUID
    frame: str
    call: str
    attempt: int
    started_at: datetime
    worker: UUID
    at: datetime
    outcome: Literal["returned", "failed"]
    result: Any = None
    error: str = ""


_COLUMNS = ("run", "frame", "call", "attempt", "started_at", "worker", "at")
_key = attrgetter(*_COLUMNS)


@dataclass(frozen=True, slots=True, kw_only=True)
class LateOutcomes:
    """The late outcomes of a run, and a text for each row that does not verify."""

    genuine: tuple[LateOutcomeRow, ...]
    forged: tuple[str, ...]


def insert(connection: Connection, late: LateOutcomeRow) -> bool:
    """Write a late outcome; return False if the attempt has one. The caller holds the run's row."""
    body = json.dumps({"outcome": late.outcome, "result": late.result, "error": late.error})
    seal = signatures.seal(purposes.JOURNAL, *_collect_mac_parts(late, body))
    cursor = connection.execute(
        """
        INSERT INTO runtime_lateoutcome
            (run_id, frame, call, attempt, started_at, worker, at, body, mac, key_id)
        VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING
        """,
        (*_key(late), body, seal.mac, seal.key_id),
    )
    return cursor.rowcount == 1


def read_for_run(connection: Connection, run: UUID) -> LateOutcomes:
    """Read the late outcomes of a run, oldest first. Raise KeyMissing."""
    rows = connection.execute(
        """
        SELECT frame, call, attempt, started_at, worker, at, body, mac, key_id
        FROM runtime_lateoutcome WHERE run_id = %s ORDER BY at
        """,
        (run,),
    )
    genuine, forged = [], []
    for *columns, body, mac, key_id in rows.fetchall():
        row = dict(zip(_COLUMNS, (run, *columns), strict=True))
        seal, blank = Seal(mac=mac, key_id=key_id), LateOutcomeRow(**row, outcome="failed")
        if signatures.verify(purposes.JOURNAL, seal, *_collect_mac_parts(blank, body)):
            genuine.append(LateOutcomeRow(**row, **json.loads(body)))
        else:
            call = f"{blank.frame}/{blank.call}, attempt {blank.attempt}"
            forged.append(f"late outcome of {call}, does not verify")
    return LateOutcomes(genuine=tuple(genuine), forged=tuple(forged))


def _collect_mac_parts(late: LateOutcomeRow, body: str) -> tuple[str, ...]:
    columns = (
        column.astimezone(UTC).isoformat() if isinstance(column, datetime) else str(column)
        for column in _key(late)
    )
    return (LABEL, *columns, body)

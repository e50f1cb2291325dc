"""The keeper of late outcomes: what became of an attempt, as its worker said when it had the run no more.

Nothing of a run changes by such a row. A step that finds its call in doubt takes it over into the journal; else it
is evidence. There is one for an attempt, never changed, and its MAC binds it to run, call, attempt and the time of
that attempt's intent, so that it says nothing of any other.
"""

import json
import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal
from uuid import UUID

from runtime import keyring
from runtime.database import Connection
from runtime.keyring import Seal

log = logging.getLogger(__name__)

LABEL = "late outcome"  # tells a row from a journal entry under the same key


@dataclass(frozen=True, slots=True, kw_only=True)
class LateOutcome:
    """`started_at` is when the attempt's intent was written, `at` when the outcome was handed in.

    `result` is what the call returned, `error` what it failed with.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What is stored for a run: what a worker said, and, in words, what does not verify."""

    genuine: tuple[LateOutcome, ...]
    forged: tuple[str, ...]


def put(connection: Connection, late: LateOutcome) -> bool:
    """Write it. False if there is one of this attempt. The caller holds the run's row."""
    body = json.dumps({"outcome": late.outcome, "result": late.result, "error": late.error})
    seal = keyring.seal(keyring.JOURNAL, *_parts(late, body))
    done = connection.execute(
        """
        INSERT INTO runtime_lateoutcome
            (run_id, frame, call, attempt, started_at, worker, at, body, mac, key_id)
        VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING
        """,
        (
            late.run,
            late.frame,
            late.call,
            late.attempt,
            late.started_at,
            late.worker,
            late.at,
            body,
            seal.mac,
            seal.key_id,
        ),
    )
    return done.rowcount == 1


def of(connection: Connection, run: UUID) -> Found:
    """Everything that was handed in for a run, oldest first. Raises KeyMissing."""
    rows = connection.execute(
        """
        SELECT frame, call, attempt, started_at, worker, at, body, mac, key_id
        FROM runtime_lateoutcome WHERE run_id = %s ORDER BY at
        """,
        (run,),
    )
    genuine, forged = [], []
    for *row, body, mac, key_id in rows.fetchall():
        late = _read(run, row, body, Seal(mac=mac, key_id=key_id))
        if late is None:
            forged.append(f"late outcome of {row[0]}/{row[1]}, attempt {row[2]}, does not verify")
        else:
            genuine.append(late)
    return Found(genuine=tuple(genuine), forged=tuple(forged))


def forget(connection: Connection, run: UUID) -> None:
    """Delete those of a run whose payloads are removed."""
    connection.execute("DELETE FROM runtime_lateoutcome WHERE run_id = %s", (run,))


def _read(run: UUID, row: list[Any], body: str, seal: Seal) -> LateOutcome | None:
    """None for what no worker wrote."""
    frame, call, attempt, started_at, worker, at = row
    place = {"run": run, "frame": frame, "call": call, "attempt": attempt}
    times = {"started_at": started_at, "worker": worker, "at": at}
    blank = LateOutcome(**place, **times, outcome="failed")
    if not keyring.verify(keyring.JOURNAL, seal, *_parts(blank, body)):
        return None
    return LateOutcome(**place, **times, **json.loads(body))


def _parts(late: LateOutcome, body: str) -> tuple[str, ...]:
    return (
        LABEL,
        str(late.run),
        late.frame,
        late.call,
        str(late.attempt),
        late.started_at.astimezone(UTC).isoformat(),
        str(late.worker),
        late.at.astimezone(UTC).isoformat(),
        body,
    )

"""Records the outcome of a call whose worker no longer has the run, so that a known outcome is not lost.

An attempt keeps running after its worker has lost the lease or released the run, or after its deadline. Its outcome is
written beside the run, not into it: the worker that holds the run, or claims it next, reads it there.
"""

import logging
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import psycopg

from runtime.broker import dispatch
from runtime.core import codec
from runtime.core.errors import NotJson
from runtime.core.events import OutcomeArrived
from runtime.core.unkept import has_happened, result_lost
from runtime.errors import RunEnded
from runtime.ports import Outcome, ToolFault, ToolRequest, ToolResult
from runtime.store import late_outcomes, leases, pool, runs
from runtime.store.late_outcomes import LateOutcome

log = logging.getLogger(__name__)

TRIES, PAUSE_SECONDS = 120, 0.5  # while Postgres is out of reach


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A launched attempt, with its request, the time of its intent and the process that runs it."""

    request: ToolRequest
    started_at: datetime
    worker: UUID


def hand_in(attempt: Attempt, outcome: Outcome) -> None:
    """Record the outcome for the run, unless it is unknown or the call may be repeated without harm.

    Runs in the tool's thread and keeps it while Postgres is out of reach, for at most a minute. Never raises.
    """
    request = attempt.request
    if not isinstance(outcome, ToolResult | ToolFault) or not has_happened(request.effect):
        return
    for _ in range(TRIES):
        try:
            _hand_in(attempt, outcome)
        except psycopg.Error as exc:
            if not pool.is_passing(exc):
                log.exception("the late outcome of %s could not be recorded", request.key)
                return
            time.sleep(PAUSE_SECONDS)  # back-off: Postgres sends no signal when it is back
        except Exception:  # the caller must free its thread in any case
            log.exception("the late outcome of %s could not be recorded", request.key)
            return
        else:
            return
    log.critical("the late outcome of %s is lost: Postgres is out of reach", request.key)


def _hand_in(attempt: Attempt, outcome: ToolResult | ToolFault) -> None:
    request = attempt.request
    with pool.pooled() as connection, connection.transaction():
        leases.lock(connection, request.run)
        late = _late(attempt, outcome, leases.now(connection))
        if not late_outcomes.put(connection, late):
            return
        with suppress(RunEnded):  # then the row is only evidence
            runs.ring(connection, request.run)
    log.warning("%s ended late; its outcome is recorded: %s", request.key, late.outcome)
    dispatch.hint(request.run)
    dispatch.ring(request.run, inbox=False)


def _late(attempt: Attempt, outcome: ToolResult | ToolFault, at: datetime) -> LateOutcome:
    request = attempt.request
    returned = isinstance(outcome, ToolResult)
    return LateOutcome(
        run=request.run,
        frame=request.frame,
        call=request.call,
        attempt=request.attempt,
        started_at=attempt.started_at,
        worker=attempt.worker,
        at=at,
        outcome="returned" if returned else "failed",
        result=_kept(request, outcome.value, at) if isinstance(outcome, ToolResult) else None,
        error=outcome.error if isinstance(outcome, ToolFault) else "",
    )


def _kept(request: ToolRequest, result: object, at: datetime) -> object:
    """Return the result, or a note in its place if no entry can carry it."""
    event = OutcomeArrived(
        frame=request.frame,
        call=request.call,
        attempt=request.attempt,
        gate=None,
        outcome="returned",
        at=at,
        result=result,
    )
    try:
        codec.require_encodable(event)
    except NotJson as exc:
        return result_lost(f"its result cannot be stored: {exc}")
    return result

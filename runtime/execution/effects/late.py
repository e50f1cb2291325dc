"""Records late outcomes, so that a known outcome is not lost.

A call may end after its deadline, or after its worker has lost or released the run. Its outcome is then written to a
table of its own. The worker that has the run, or claims it next, reads it there.
"""

import logging
import time
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from uuid import UUID

import psycopg

from runtime.broker import dispatch
from runtime.core.documents import codec
from runtime.core.documents.lost_results import result_lost
from runtime.core.effect_classes import RULES
from runtime.core.errors import NotJson
from runtime.errors import RunEnded
from runtime.execution.effects.outcomes import arrival
from runtime.ports.effects import Outcome, ToolFailure, ToolRequest, ToolResult
from runtime.store import leases, pool, runs
from runtime.store.tables import late_outcomes
from runtime.store.tables.late_outcomes import LateOutcomeRow

log = logging.getLogger(__name__)

TRIES, PAUSE_SECONDS = 120, 0.5  # while Postgres is unreachable


def record(request: ToolRequest, outcome: Outcome, *, started_at: datetime, worker: UUID) -> None:
    """Record the outcome, unless it is unknown or the call may safely be repeated.

    `started_at` is the time of the intent. Blocks while Postgres is unreachable, for at most a minute. Never raises.
    """
    if (
        not isinstance(outcome, ToolResult | ToolFailure)
        or not RULES[request.effect].happened_when_returned
    ):
        return
    for _ in range(TRIES):
        try:
            _record(request, outcome, started_at, worker)
        except Exception as exc:  # the caller must free its thread in every case
            if not isinstance(exc, psycopg.Error) or not pool.is_passing(exc):
                log.exception("Call %s: late outcome not recorded", request.key)
                return
            time.sleep(PAUSE_SECONDS)  # a bounded retry: Postgres sends no signal when it is back
        else:
            return
    log.critical("Call %s: late outcome lost, Postgres is unreachable", request.key)


def _record(
    request: ToolRequest, outcome: ToolResult | ToolFailure, started_at: datetime, worker: UUID
) -> None:
    with pool.pooled() as connection, connection.transaction():
        leases.lock(connection, request.run)
        late = _storable(
            LateOutcomeRow(
                run=request.run,
                frame=request.frame,
                call=request.call,
                attempt=request.attempt,
                started_at=started_at,
                worker=worker,
                at=pool.now(connection),
                outcome="returned" if isinstance(outcome, ToolResult) else "failed",
                result=outcome.value if isinstance(outcome, ToolResult) else None,
                error=outcome.error if isinstance(outcome, ToolFailure) else "",
            )
        )
        if not late_outcomes.insert(connection, late):
            return
        with suppress(RunEnded):  # then the row is only evidence
            runs.notify_signal(connection, request.run)
    log.warning("Call %s: ended late, outcome recorded: %s", request.key, late.outcome)
    dispatch.dispatch(request.run)
    dispatch.notify_run(request.run, inbox=False)


def _storable(late: LateOutcomeRow) -> LateOutcomeRow:
    """Return the outcome with a note in place of a result that no entry can carry."""
    try:
        codec.require_encodable(arrival(late, gate=None))
    except NotJson as exc:
        return replace(late, result=result_lost(f"its result cannot be stored: {exc}"))
    return late

"""What the rooms above may do to runs: start, settle a gate, cancel. All inside the caller's transaction."""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction

from runtime import database, dispatch, gates, journal, leases, ports, signals
from runtime.core.decisions import Decision
from runtime.core.digest import require_json
from runtime.core.events import RunStarted
from runtime.core.replay import Entry
from runtime.database import Connection
from runtime.errors import BusinessKeyConflict
from runtime.ports import Actor


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The run, and whether this call created it or found it by its business key."""

    run: UUID
    created: bool


def start(*, agent: str, input: Any, requester: Actor, business_key: str | None = None) -> Started:
    """Start a run; the same business key, agent and requester with the same input finds the same run.

    Raises BusinessKeyConflict for another input, NotJson for one that is not JSON.
    """
    require_json(input, "input")
    connection = _transaction()
    run, at = _new_id(connection)
    event = RunStarted(agent=agent, input=input, requester=requester.person)
    first = journal.seal(run, 1, "", Entry(at=at, events=(event,)))
    row = {
        "id": run,
        "agent": agent,
        "requester": requester.person,
        "token": requester.token,
        "business_key": business_key,
        "input": json.dumps(input),
        "head": first.seal.mac,
    }
    if not leases.insert(connection, row):
        return _found(connection, row, input)
    journal.append_first(connection, first)
    transaction.on_commit(lambda: _tell(run))
    return Started(run=run, created=True)


def settle(*, gate: UUID, decision: Decision) -> None:
    """Close an open gate with a decision and wake its run. Raises GateNotOpen if somebody was faster.

    The first statement locks the run's row, so everything the caller writes after it is one at a time.
    """
    connection = _transaction()
    run = gates.find(connection, gate).run
    leases.ring(connection, run)
    gates.decide(connection, gate)
    signals.send_decision(connection, run=run, gate=gate, decision=decision)
    transaction.on_commit(lambda: _tell(run, inbox=True))


def cancel(*, run: UUID, actor: Actor, reason: str) -> None:
    """End a run: nothing new starts, and what waits for people is closed here and now.

    Raises RunEnded. A gate that somebody decided before keeps its decision, which then takes no effect.
    """
    connection = _transaction()
    leases.ring(connection, run)
    closed = gates.close_open(connection, run)
    ports.gatekeeper().close(run=run, gates=closed, actor=actor, reason=reason)
    signals.send_cancel(connection, run=run, by=actor.person, reason=reason)
    transaction.on_commit(lambda: _tell(run, inbox=True))


def _tell(run: UUID, *, inbox: bool = False) -> None:
    dispatch.hint(run)
    dispatch.ring(run, inbox=inbox)


def _transaction() -> Connection:
    if not transaction.get_connection().in_atomic_block:
        raise transaction.TransactionManagementError("call this inside transaction.atomic()")
    return database.djangos()


def _new_id(connection: Connection) -> tuple[UUID, datetime]:
    row = connection.execute(
        "SELECT abeyance_uuid7(clock_timestamp()), clock_timestamp()"
    ).fetchone()
    assert row is not None  # a SELECT without FROM has one row
    return row[0], row[1]


def _found(connection: Connection, row: dict[str, Any], input: Any) -> Started:
    found = connection.execute(
        """
        SELECT id, input FROM runtime_run
        WHERE agent = %(agent)s AND requester = %(requester)s AND business_key = %(business_key)s
        """,
        row,
    ).fetchone()
    assert found is not None  # the conflicting row is committed and runs are never deleted
    if json.loads(found[1]) != input:
        raise BusinessKeyConflict
    return Started(run=found[0], created=False)

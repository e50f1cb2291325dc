"""What the rooms above may do to runs, inside the caller's transaction, from their start to their end."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction

from runtime import ports
from runtime.broker import dispatch
from runtime.control import delivery, porting
from runtime.control.transaction import join, notify
from runtime.core.budgets import NO_LIMITS, Budget
from runtime.core.continuation import RunStatus
from runtime.core.decisions import Decision
from runtime.core.digest import require_json
from runtime.core.events import RunStarted
from runtime.core.replay import Entry
from runtime.errors import BusinessKeyConflict, GateNotOpen
from runtime.ports import Actor, Part
from runtime.store import decisions, gates, journal, pool, runs, signals, starts
from runtime.store.journal import Sealed
from runtime.store.pool import Connection
from runtime.store.starts import Born


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The run, and whether this call created it or found it by its business key."""

    run: UUID
    created: bool


def start(
    *,
    agent: str,
    input: Any,
    requester: Actor,
    business_key: str | None = None,
    budget: Budget | None = None,
    born: Born | None = None,
) -> Started:
    """Start a run; the same business key, agent and requester with the same input finds the same run.

    In the caller's transaction, if there is one. The database is asked for an id unless the run is `born`. Raises
    BusinessKeyConflict for another input, NotJson for one that is not JSON.
    """
    require_json(input, "input")
    with pool.asking() as connection:
        if born is None:
            born, _ = starts.look(connection)
        first, row = _first(agent, input, requester, business_key, budget, born)
        if not starts.write(connection, row, first):
            return _found(connection, row, input)
    notify(first.run, queue=dispatch.NEW)
    return Started(run=first.run, created=True)


def _first(
    agent: str,
    input: Any,
    requester: Actor,
    business_key: str | None,
    budget: Budget | None,
    born: Born,
) -> tuple[Sealed, dict[str, Any]]:
    """The first entry of a run, and its row."""
    event = RunStarted(
        agent=agent,
        input=input,
        requester=requester.person,
        budget=budget or NO_LIMITS,
        business_key=business_key,
    )
    first = journal.seal(born.run, 1, "", Entry(at=born.at, events=(event,)))
    return first, {
        "id": born.run,
        "agent": agent,
        "requester": requester.person,
        "token": requester.token,
        "business_key": business_key,
        "input": json.dumps(input),
        "head": first.seal.mac,
    }


def export(*, run: UUID, actor: Actor) -> str:
    """Hand a run over: end it here, close what it waits at, and return the signed file of it.

    A run that was exported before gives its file again. Raises NoSuchRun, RunEnded, NotAtRest, TooLarge,
    Tampered, KeyMissing, or NewerSchema.
    """
    connection = _transaction()
    keeper = ports.gatekeeper()
    if runs.standing(connection, run).status != RunStatus.EXPORTED:
        closed = porting.leave(connection, run, actor=actor, at=pool.now(connection))
        keeper.close(run=run, gates=closed, actor=None, reason=f"{actor.person} exported the run.")
        notify(run, inbox=True, hint=False)
    keeper.note(run=run, actor=actor, act="exported", detail={})
    return porting.package(connection, run)


def take_over(*, text: str, actor: Actor) -> UUID:
    """Take over a run that another installation exported. Returns its id. Raises NotImportable or RunKnown."""
    connection = _transaction()
    now = porting.arrive(connection, text, actor=actor, at=pool.now(connection))
    ports.gatekeeper().note(run=now.run, actor=actor, act="imported", detail={})
    notify(now.run)
    return now.run


def settle(
    *,
    gate: UUID,
    decision: Decision,
    effective_at: datetime | None = None,
    lent: Sequence[Part] = (),
) -> None:
    """Close an open gate with a decision and wake its run, with the parts that the caller lends.

    Until `effective_at` (at once if None) the decision can be taken back, and the run does not hear of it.
    In the caller's transaction, if there is one. Raises GateNotOpen, with nothing written, if another decision was
    faster, the run is over or a required part writes no row.
    """
    with pool.asking() as connection:
        run = decisions.settle(
            connection, gate=gate, decision=decision, effective_at=effective_at, lent=lent
        )
    notify(run, inbox=True, hint=effective_at is None)


def undo(*, gate: UUID) -> None:
    """Take a decision back that does not count yet: its gate is open again. Raises GateNotOpen once it counts."""
    connection = _transaction()
    run = gates.find(connection, gate).run
    runs.ring(connection, run)
    if not signals.withdraw(connection, run, gate):
        raise GateNotOpen
    gates.reopen(connection, gate)
    notify(run, inbox=True)


def send(*, id: str, name: str, data: dict[str, Any], actor: Actor) -> delivery.Delivered:
    """Tell of an event from outside: the calls that wait for it return it. Raises EventConflict, TooManyMatched."""
    connection = _transaction()
    done = delivery.deliver(connection, id=id, name=name, data=data, actor=actor)
    for run in done.runs:
        join(connection, run, actor)
        ports.gatekeeper().note(run=run, actor=actor, act="sent", detail={"event": name, "id": id})
        notify(run)
    return done


def _transaction() -> Connection:
    if not transaction.get_connection().in_atomic_block:
        raise transaction.TransactionManagementError("call this inside transaction.atomic()")
    return pool.djangos()


def _found(connection: Connection, row: dict[str, Any], input: Any) -> Started:
    found = connection.execute(
        """
        SELECT id, input, removed_at FROM runtime_run
        WHERE agent = %(agent)s AND requester = %(requester)s AND business_key = %(business_key)s
        """,
        row,
    ).fetchone()
    assert found is not None  # the conflicting row is committed and runs are never deleted
    # What it was given may be gone under retention: then the key alone says that it is the same.
    if found[2] is None and json.loads(found[1]) != input:
        raise BusinessKeyConflict
    return Started(run=found[0], created=False)

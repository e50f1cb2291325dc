"""What the rooms above may do to runs, inside the caller's transaction, from their start to their end."""

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction

from runtime import ports
from runtime.broker import dispatch
from runtime.control import delivery, forking, porting, readmission, retrying
from runtime.core.budgets import NO_LIMITS, Budget
from runtime.core.contents import digest_of
from runtime.core.continuation import RunStatus
from runtime.core.decisions import Decision
from runtime.core.digest import require_json
from runtime.core.events import RunStarted
from runtime.core.limits import MAX_UNHEARD
from runtime.core.replay import Entry
from runtime.errors import BusinessKeyConflict, GateNotOpen, RunEnded, TooManyUnheard
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
    transaction.on_commit(lambda: _tell(first.run, queue=dispatch.NEW))
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


def fork(*, run: UUID, position: int, actor: Actor) -> UUID:
    """Start a new run from a copy of this one as it was after entry `position`. Returns its id.

    Nothing that was recorded is repeated, nothing that was allowed is inherited, and the original is left as
    it is. Raises NoSuchEntry, NotQuiescent, Tampered, KeyMissing, or NewerSchema.
    """
    connection = _transaction()
    born, _ = starts.look(connection)
    new = born.run
    fork = forking.Fork(run=new, of=run, position=position)
    forking.write(connection, fork, actor=actor, at=born.at)
    where: dict[str, str | None] = {"position": str(position)}
    keeper = ports.gatekeeper()
    keeper.note(run=run, actor=actor, act="forked", detail={"into": str(new), **where})
    keeper.note(run=new, actor=actor, act="started", detail={"fork of": str(run), **where})
    transaction.on_commit(lambda: _tell(new))
    return new


def export(*, run: UUID, actor: Actor) -> str:
    """Hand a run over: end it here, close what it waits at, and return the signed file of it.

    A run that was exported before gives its file again. Raises NoSuchRun, RunEnded, NotAtRest, TooLarge,
    Tampered, KeyMissing, or NewerSchema.
    """
    connection = _transaction()
    keeper = ports.gatekeeper()
    if runs.standing(connection, run).status != RunStatus.EXPORTED:
        closed = porting.leave(connection, run, actor=actor, at=_now(connection))
        keeper.close(run=run, gates=closed, actor=None, reason=f"{actor.person} exported the run.")
        transaction.on_commit(lambda: dispatch.ring(run, inbox=True))
    keeper.note(run=run, actor=actor, act="exported", detail={})
    return porting.package(connection, run)


def take_over(*, text: str, actor: Actor) -> UUID:
    """Take over a run that another installation exported. Returns its id. Raises NotImportable or RunKnown."""
    connection = _transaction()
    now = porting.arrive(connection, text, actor=actor, at=_now(connection))
    ports.gatekeeper().note(run=now.run, actor=actor, act="imported", detail={})
    transaction.on_commit(lambda: _tell(now.run))
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
    transaction.on_commit(lambda: _tell(run, inbox=True, hint=effective_at is None))


def undo(*, gate: UUID) -> None:
    """Take a decision back that does not count yet: its gate is open again. Raises GateNotOpen once it counts."""
    connection = _transaction()
    run = gates.find(connection, gate).run
    runs.ring(connection, run)
    if not signals.withdraw(connection, run, gate):
        raise GateNotOpen
    gates.reopen(connection, gate)
    transaction.on_commit(lambda: _tell(run, inbox=True))


def cancel(*, run: UUID, actor: Actor, reason: str) -> None:
    """End a run: nothing new starts, and what waits for people is closed here and now.

    Raises RunEnded. A decision that counts already keeps its gate, and then takes no effect; one that could
    still be taken back is void.
    """
    connection = _transaction()
    runs.ring(connection, run)
    withdrawn = signals.withdraw(connection, run)
    gates.close_decided(connection, withdrawn)
    closed = [*withdrawn, *gates.close_open(connection, run)]
    ports.gatekeeper().close(run=run, gates=closed, actor=actor, reason=reason)
    signals.send_cancel(connection, run=run, by=actor.person, reason=reason)
    transaction.on_commit(lambda: _tell(run, inbox=True))


def pause(*, run: UUID, actor: Actor, reason: str) -> bool:
    """Hold a run up: nothing new starts until it is resumed. False, with nothing written, if it is held up.

    Raises RunEnded, also for a run that is being cancelled.
    """
    connection = _transaction()
    if _is_paused(connection, run):
        return False
    runs.ring(connection, run)
    signals.send_pause(connection, run=run, by=actor.person, reason=reason)
    ports.gatekeeper().note(run=run, actor=actor, act="paused", detail={"reason": reason})
    transaction.on_commit(lambda: _tell(run))
    return True


def resume(*, run: UUID, actor: Actor) -> bool:
    """Let a run that is held up go on. False, with nothing written, if it is not held up.

    Raises RunEnded, also for a run that is being cancelled.
    """
    connection = _transaction()
    if not _is_paused(connection, run):
        return False
    runs.ring(connection, run)
    signals.send_resume(connection, run=run, by=actor.person)
    ports.gatekeeper().note(run=run, actor=actor, act="resumed", detail={})
    transaction.on_commit(lambda: _tell(run))
    return True


def readmit(*, run: UUID, actor: Actor, reason: str) -> None:
    """Let a run out of quarantine: it goes on where it stood.

    Raises NoSuchRun, NotQuarantined, Tampered, KeyMissing, or NewerSchema.
    """
    alone = readmission.readmit(_transaction(), run)
    ports.gatekeeper().note(run=run, actor=actor, act="readmitted", detail={"reason": reason})
    queue = dispatch.ISOLATED if alone else dispatch.RESUMED
    transaction.on_commit(lambda: _tell(run, inbox=True, queue=queue))


def retry(*, run: UUID, actor: Actor, reason: str) -> None:
    """Continue a failed run from where it failed, with its results and approvals.

    Raise NoSuchRun, NotFailed, Tampered, KeyMissing, or NewerSchema.
    """
    connection = _transaction()
    retrying.retry(connection, run, by=actor.person, reason=reason, at=_now(connection))
    _join(connection, run, actor)
    ports.gatekeeper().note(run=run, actor=actor, act="retried", detail={"reason": reason})
    transaction.on_commit(lambda: _tell(run, inbox=True))


def write(*, run: UUID, actor: Actor, text: str) -> None:
    """Write to a run: its agent hears it when its model is asked next.

    Raises RunEnded, also for a run that is being cancelled, and TooManyUnheard.
    """
    connection = _transaction()
    _require_open(connection, run)
    unheard = runs.unheard(connection, run)
    if unheard + signals.number_of(connection, run, signals.MESSAGE) >= MAX_UNHEARD:
        raise TooManyUnheard
    runs.ring(connection, run)
    signals.send_message(connection, run=run, by=actor.person, text=text)
    _join(connection, run, actor)
    ports.gatekeeper().note(run=run, actor=actor, act="wrote", detail={"digest": digest_of(text)})
    transaction.on_commit(lambda: _tell(run))


def send(*, id: str, name: str, data: dict[str, Any], actor: Actor) -> delivery.Delivered:
    """Tell of an event from outside: the calls that wait for it return it. Raises EventConflict, TooManyMatched."""
    connection = _transaction()
    done = delivery.deliver(connection, id=id, name=name, data=data, actor=actor)
    for run in done.runs:
        _join(connection, run, actor)
        ports.gatekeeper().note(run=run, actor=actor, act="sent", detail={"event": name, "id": id})
        transaction.on_commit(functools.partial(_tell, run))
    return done


def _join(connection: Connection, run: UUID, actor: Actor) -> None:
    """Add a person who steers a run to its origin, at once: a worker journals it only later."""
    if runs.join(connection, run, actor.person):
        ports.gatekeeper().join(run=run, person=actor.person)


def _is_paused(connection: Connection, run: UUID) -> bool:
    """Whether the run is held up, once its signals are taken up. Locks its row. Raises RunEnded."""
    status = _require_open(connection, run)
    asked = signals.last_of(connection, run, signals.PAUSE, signals.RESUME)
    return status == RunStatus.PAUSED if asked is None else asked == signals.PAUSE


def _require_open(connection: Connection, run: UUID) -> str:
    """The status of a run that is neither over nor told to end. Locks its row. Raises RunEnded."""
    status = runs.lock(connection, run)
    if signals.last_of(connection, run, signals.CANCEL) is not None:
        raise RunEnded(RunStatus.CANCELLING)
    return status


def _tell(
    run: UUID, *, inbox: bool = False, queue: str = dispatch.RESUMED, hint: bool = True
) -> None:
    if hint:
        dispatch.hint(run, queue)
    dispatch.ring(run, inbox=inbox)


def _transaction() -> Connection:
    if not transaction.get_connection().in_atomic_block:
        raise transaction.TransactionManagementError("call this inside transaction.atomic()")
    return pool.djangos()


def _now(connection: Connection) -> datetime:
    row = connection.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None  # a SELECT without FROM has one row
    at: datetime = row[0]
    return at


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

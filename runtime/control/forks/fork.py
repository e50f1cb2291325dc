"""Forks a run: starts a new run from a copy of its state. The original does not change."""

import json
from collections.abc import Iterator
from functools import partial
from uuid import UUID

from runtime.control import access
from runtime.control.forks import changes
from runtime.control.transaction import atomic, notify
from runtime.core.documents.blobs import blob_refs
from runtime.core.run.continuation import joined, merge_people, status_of, steered_by
from runtime.core.run.events import Event, ForkChange, Forked, RunStarted
from runtime.core.run.forks import fork_document, is_quiescent, without_permissions
from runtime.core.run.reducer import Entry
from runtime.errors import Forbidden, InvalidInput, NotQuiescent, RunArchived
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.store import archived_runs, runs
from runtime.store.pool import Connection
from runtime.store.tables import blobs, journal


def fork(*, run: UUID, position: object, actor: Actor, change: object = None) -> UUID:
    """Start a new run from the state of this one after entry `position`. Return its id.

    The fork repeats no recorded call and inherits no approval. `change` is what the actor changes in it (see
    runtime.control.forks.changes). Raise, in this order: NoSuchRun; Forbidden (`not_eligible`); InvalidInput naming
    `position`; RunArchived; NoSuchEntry or HistoryRemoved; NotQuiescent; Tampered, KeyMissing or NewerSchema;
    InvalidInput naming `change`.
    """
    original = access.readable(run, actor)
    if not wiring.access().may_fork(actor, original.requester):
        raise Forbidden(
            "not_eligible", f"{actor.person} may not fork runs of {original.requester}."
        )
    if not isinstance(position, int) or isinstance(position, bool):
        raise InvalidInput("position", "must be the number of an entry")
    if not 1 <= position <= original.position:
        raise InvalidInput("position", f"must be an entry of the run: 1 to {original.position}")
    with atomic() as connection:
        new, recorded_change = _copy(connection, run, position, actor, change)
        detail: dict[str, str | None] = {"position": str(position)}
        if recorded_change is not None:
            target = recorded_change.call or (
                str(recorded_change.number) if recorded_change.number else ""
            )
            detail["changed"] = f"{recorded_change.kind} {recorded_change.frame} {target}".rstrip()
        approvals = wiring.approvals()
        approvals.record_audit(
            run=run, actor=actor, act="forked", detail={"into": str(new), **detail}
        )
        approvals.record_audit(
            run=new, actor=actor, act="started", detail={"fork of": str(run), **detail}
        )
        notify(new)
    return new


def _copy(
    connection: Connection, run: UUID, position: int, actor: Actor, sent: object
) -> tuple[UUID, ForkChange | None]:
    """Write the new run, due at once and without a business key. Return its id and the change in it."""
    born, _ = runs.peek_start(connection)
    runs.lock_against_retention(connection, run)
    if archived_runs.find_file(connection, run) is not None:
        raise RunArchived
    now = journal.state_at(connection, run, position)
    now = joined(now, *runs.origin(connection, run))
    if not is_quiescent(now):
        raise NotQuiescent
    now, change = without_permissions(now), None
    if sent is not None:
        later = partial(_recorded_after, connection, run, position)
        now, change = changes.apply(now, sent, actor.person, later)
    events = (
        RunStarted(agent=now.agent, input=now.input, requester=actor.person),
        Forked(of=run, position=position, by=actor.person, state=fork_document(now), change=change),
    )
    first = journal.sign(born.run, 1, "", Entry(at=born.at, events=events))
    row = {
        "id": born.run,
        "agent": now.agent,
        "requester": actor.person,
        "origin": merge_people(steered_by(now), [actor.person]),
        "token": actor.token,
        "business_key": None,
        "input": json.dumps(now.input),
        "status": status_of(now, held=False),
        "head": first.seal.mac,
        "unheard": len(now.unheard),
    }
    runs.insert(connection, row)
    journal.append_first(connection, first)
    blobs.share(connection, born.run, blob_refs(now))
    blobs.share_remembered(connection, born.run, now.memory)
    return born.run, change


def _recorded_after(connection: Connection, run: UUID, position: int) -> Iterator[Event]:
    """Yield the events of the run after this entry."""
    for sealed, entry in journal.history(connection, run).entries:
        if sealed.position > position:
            yield from entry.events

"""A new run made of a copy of another one's state; the other one is read, and nothing of it is changed."""

import json
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from runtime.core.contents import referred
from runtime.core.continuation import status_of
from runtime.core.events import Forked, RunStarted
from runtime.core.forks import forked, quiescent, released
from runtime.core.origin import joined, merged
from runtime.core.replay import Entry
from runtime.errors import NotQuiescent
from runtime.ports import Actor
from runtime.store import blobs, journal, runs
from runtime.store.pool import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """What is forked where: `run` is the new run's id."""

    run: UUID
    of: UUID
    position: int


def write(connection: Connection, fork: Fork, *, actor: Actor, at: datetime) -> None:
    """Write the new run, due at once and without a business key, inside the caller's transaction.

    Raises NoSuchEntry, NotQuiescent, Tampered, KeyMissing, or NewerSchema.
    """
    runs.keep(connection, fork.of)
    now = journal.state_at(connection, fork.of, fork.position)
    now = joined(now, *runs.origin(connection, fork.of))
    if not quiescent(now):
        raise NotQuiescent
    events = (
        RunStarted(agent=now.agent, input=now.input, requester=actor.person),
        Forked(of=fork.of, position=fork.position, by=actor.person, state=forked(now)),
    )
    first = journal.seal(fork.run, 1, "", Entry(at=at, events=events))
    runs.insert(
        connection,
        {
            "id": fork.run,
            "agent": now.agent,
            "requester": actor.person,
            "origin": merged(now.origin, [actor.person]),
            "token": actor.token,
            "business_key": None,
            "input": json.dumps(now.input),
            "status": status_of(released(now), held=False),
            "head": first.seal.mac,
            "unheard": len(now.unheard),
        },
    )
    journal.append_first(connection, first)
    blobs.share(connection, fork.run, referred(now))

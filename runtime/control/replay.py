"""Has a worker replay a recorded run with its code, and reads such replays. For admins."""

from uuid import UUID, uuid4

from django.db import transaction

from runtime import broker
from runtime.control import access
from runtime.control.transaction import atomic
from runtime.errors import AgentWithoutWorker, NoSuchReplay, NothingToReplay, ReplayNotEnded
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.queries.processes import workers
from runtime.store import pool, runs
from runtime.store.tables.jobs import replays
from runtime.store.tables.jobs.replays import StoredReplay

_FOR_ADMINS = "Only admins may replay runs."


def ask(*, run: UUID, actor: Actor) -> StoredReplay:
    """Have a worker replay a run.

    Raise, in this order: NoSuchRun; Forbidden (`not_eligible`); NothingToReplay; AgentWithoutWorker if workers live,
    and none has the agent; ReplayNotEnded.
    """
    agent, replay = access.for_admins(run, actor, _FOR_ADMINS).agent, uuid4()
    with atomic() as connection:
        if runs.locked_row(connection, run).erased:
            raise NothingToReplay
        live = workers.live_versions(workers.ALIVE)
        if live and agent not in live:
            raise AgentWithoutWorker(f"No live worker has the agent {agent}.")
        if not replays.add(connection, replay, run=run, by=actor.person, token=actor.token):
            raise ReplayNotEnded
        wiring.approvals().record_audit(run=run, actor=actor, act="replayed", detail={})
        transaction.on_commit(lambda: broker.dispatch(replay, broker.REPLAY))
    return find(run=run, replay=replay, actor=actor)


def find(*, run: UUID, replay: UUID, actor: Actor) -> StoredReplay:
    """Return a replay of the run. Raise NoSuchRun, Forbidden (`not_eligible`), or NoSuchReplay."""
    access.for_admins(run, actor, _FOR_ADMINS)
    with pool.in_transaction() as connection:
        stored = replays.find(connection, replay)
    if stored is None or stored.run != run:
        raise NoSuchReplay
    return stored


def listed(*, run: UUID, actor: Actor) -> list[StoredReplay]:
    """Return the replays of a run without their results, the newest first. Raise as `find` does."""
    access.for_admins(run, actor, _FOR_ADMINS)
    with pool.in_transaction() as connection:
        return replays.listed(connection, run)

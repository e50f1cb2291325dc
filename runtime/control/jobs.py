"""Has workers replay recorded runs, for admins, and preview calls with edited arguments; approvals checks who may."""

import json
from typing import Any
from uuid import UUID, uuid4

from django.db import transaction

from runtime import broker
from runtime.control import user_actions
from runtime.errors import AgentWithoutWorker, NoSuchReplay, NothingToReplay, ReplayNotEnded
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.reads import workers
from runtime.store import pool, runs
from runtime.store.tables.jobs import PREVIEWS, REPLAYS, EditPreviewRow, JobKind, ReplayRow

_FOR_ADMINS = "Only admins may replay runs."


def enqueue(connection: pool.Connection, kind: JobKind[Any], **columns: object) -> UUID | None:
    """Add a job, and have it sent to a worker once the caller's transaction commits.

    Return None if one that has not ended is in its way.
    """
    job = uuid4()
    if not kind.add(connection, job, **columns):
        return None
    transaction.on_commit(lambda: broker.dispatch(job, kind.name))
    return job


def replay_run(*, run: UUID, actor: Actor) -> ReplayRow:
    """Have a worker replay a run.

    Raise, in this order: NoSuchRun; Forbidden (`not_eligible`); NothingToReplay; AgentWithoutWorker if workers live,
    and none has the agent; ReplayNotEnded.
    """
    agent = user_actions.require_run_for_admins(run, actor, _FOR_ADMINS).agent
    with user_actions.open_transaction() as connection:
        if runs.lock_row(connection, run).erased:
            raise NothingToReplay
        live = workers.read_live_versions(workers.ALIVE)
        if live and agent not in live:
            raise AgentWithoutWorker(f"No live worker has the agent {agent}.")
        replay = enqueue(connection, REPLAYS, run=run, by=actor.person, token=actor.token)
        if replay is None:
            raise ReplayNotEnded
        wiring.resolve_approvals().record_audit(run=run, actor=actor, act="replayed", detail={})
    return find_replay(run=run, replay=replay, actor=actor)


def find_replay(*, run: UUID, replay: UUID, actor: Actor) -> ReplayRow:
    """Return a replay of the run. Raise NoSuchRun, Forbidden (`not_eligible`), or NoSuchReplay."""
    user_actions.require_run_for_admins(run, actor, _FOR_ADMINS)
    with pool.join_transaction() as connection:
        row = REPLAYS.find(connection, replay)
    if row is None or row.run != run:
        raise NoSuchReplay
    return row


def list_replays(*, run: UUID, actor: Actor) -> list[ReplayRow]:
    """Return the replays of a run without their results, the newest first. Raise as `find_replay` does."""
    user_actions.require_run_for_admins(run, actor, _FOR_ADMINS)
    with pool.join_transaction() as connection:
        return REPLAYS.list_newest(connection, run=run)


def preview_edit(*, run: UUID, gate: UUID, by: str, args: dict[str, Any]) -> UUID:
    """Have a worker preview the call with these arguments. This replaces the person's last preview of it."""
    with user_actions.open_transaction() as connection:
        columns = {"run": run, "gate": gate, "by": by, "args": json.dumps(args)}
        preview = enqueue(connection, PREVIEWS, **columns)
    assert preview is not None  # it takes the place of the one before
    return preview


def find_preview(*, gate: UUID, by: str, preview: UUID) -> EditPreviewRow | None:
    """Return this person's preview of the call at the gate, or None if it does not exist or was replaced."""
    with pool.join_transaction() as connection:
        row = PREVIEWS.find(connection, preview)
    return row if row is not None and (row.gate, row.by) == (gate, by) else None

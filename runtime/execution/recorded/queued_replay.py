"""Performs the replay of a run that an admin gave to a worker.

A process performs one replay at a time, so that its runs keep most of the processor.
"""

import os
import socket
import threading
import time
from collections.abc import Callable
from uuid import UUID

from django.utils import timezone

from runtime.execution.recorded.problems import problem_of
from runtime.execution.recorded.replay import replay
from runtime.execution.recorded.trials import MAX_SECONDS
from runtime.execution.worker import has_agent, is_for_another
from runtime.ports.approvals import ApprovalPort
from runtime.ports.effects import EffectHandler
from runtime.store import pool
from runtime.store.tables import kill_switches
from runtime.store.tables.jobs import replays
from runtime.store.tables.jobs.replays import StoredReplay

DRAINED = "The worker was stopped before the replay was done. Start another replay."
TOO_LONG = f"The replay took more than {MAX_SECONDS:.0f} seconds. The entries below were compared."
STOPPED = "An administrator stopped an agent of the run: its script is not asked."
EMPTY = "The run has no step that can be compared."
MAX_DIVERGENCES = 20  # that are stored
NOTE_SECONDS = 1.0  # between two notes of the number of entries compared

_replaying = threading.Lock()


def perform(
    job: UUID, *, handler: EffectHandler, approvals: ApprovalPort, drains: Callable[[], bool]
) -> None:
    """Perform a queued replay once.

    Does nothing if the replay was begun or does not exist, while this process performs another one, or if only another
    live worker has the run's agent: the sweeper then sends it again.
    """
    if not _replaying.acquire(blocking=False):
        return
    try:
        with pool.pooled() as connection:
            queued = replays.find(connection, job)
            if queued is not None and is_for_another(connection, queued.agent, handler):
                return
            begun = replays.begin(connection, job, host=socket.gethostname(), process=os.getpid())
        if begun is None:
            return
        problem = problem_of(
            lambda: _replay(begun, handler, approvals, drains),
            f"Run {begun.run}: replay {job}",
        )
        with pool.pooled() as connection:
            replays.JOBS.end(connection, job, problem)
    finally:
        _replaying.release()


def _replay(
    stored_replay: StoredReplay,
    handler: EffectHandler,
    approvals: ApprovalPort,
    drains: Callable[[], bool],
) -> str:
    """Replay the run, store the divergences, and return why the replay ended early, or an empty text."""
    if not has_agent(handler, stored_replay.agent):
        return f"No live worker has the agent {stored_replay.agent}. Start one that has it, then another replay."
    until = time.monotonic() + MAX_SECONDS
    noted, compared_entries, of = float("-inf"), 0, 0

    def may_continue(compared: int, entries: int) -> bool:
        nonlocal noted, compared_entries, of
        compared_entries, of = compared, entries
        if (now := time.monotonic()) > noted + NOTE_SECONDS:
            noted = now
            with pool.pooled() as connection:
                replays.note(connection, stored_replay.id, compared=compared, entries=entries)
        return not drains() and now <= until

    def stopped_agents() -> frozenset[str]:
        with pool.pooled() as connection:
            return kill_switches.stopped_agents(connection)

    result = replay(
        pool.pooled,
        stored_replay.run,
        handler=handler,
        approvals=approvals,
        is_scripted=handler.is_scripted,
        clock=timezone.now,
        may_continue=may_continue,
        stopped_agents=stopped_agents,
    )
    with pool.pooled() as connection:
        replays.note(
            connection,
            stored_replay.id,
            compared=of if result.whole else compared_entries,
            entries=of,
        )
        replays.save(connection, stored_replay.id, result.document(MAX_DIVERGENCES))
    if result.whole:
        return "" if result.compared else EMPTY
    if result.was_stopped:
        return STOPPED
    return DRAINED if drains() else TOO_LONG

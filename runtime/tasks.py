"""What a worker process does for a hint: advances a run, or performs a job, which is a Celery task for each kind.

Sets up, drains and stops a worker process.
"""

import logging
import os
import signal
from collections.abc import Callable
from functools import cache
from typing import Any
from uuid import UUID

from celery import shared_task
from django.conf import settings

from runtime import broker
from runtime.execution.claim import advance
from runtime.execution.effects.pool import EffectPool
from runtime.execution.heartbeat import Heartbeat
from runtime.execution.jobs import edit_previews, prompt_trials, replays
from runtime.execution.worker import WorkerContext
from runtime.ports import wiring
from runtime.store import pool
from runtime.store.tables import jobs
from runtime.store.tables.jobs import JobKind

log = logging.getLogger(__name__)

FLUSH_SECONDS = 2.0


def advance_run(hint: str) -> None:
    """Advance the run as far as possible. A hint for a run that is not due, or for no run, has no effect.

    A process that drains passes the hint on: otherwise the run would wait until the sweeper sends another one.
    """
    if (run := _parse_id(hint)) is None:
        return
    context = open_worker_context()
    if context.heartbeat.draining.started:
        broker.dispatch(run)
    else:
        advance(run, context)


def _define_job(
    kind: JobKind[Any], perform: Callable[[UUID, WorkerContext, Callable[[], bool]], None]
) -> None:
    """Define the task that performs a waiting job. A hint for another one, or in a draining process, has no effect."""

    @shared_task(name=broker.name_job_task(kind.name))
    def perform_job(job: object = None, *_: object, **__: object) -> None:
        context = open_worker_context()
        draining = context.heartbeat.draining
        if (job_id := _parse_id(job)) is not None and not draining.started:
            perform(job_id, context, lambda: draining.started)


_define_job(
    jobs.TRIALS,
    lambda job, context, drains: prompt_trials.perform(job, handler=context.handler, drains=drains),
)
_define_job(
    jobs.REPLAYS,
    lambda job, context, drains: replays.perform(
        job, handler=context.handler, approvals=context.approvals, drains=drains
    ),
)
_define_job(
    jobs.PREVIEWS,
    lambda job, context, _: edit_previews.perform(
        job, handler=context.handler, effect_pool=context.effect_pool
    ),
)


def _parse_id(text: object) -> UUID | None:
    try:
        return UUID(text if isinstance(text, str) else "")
    except ValueError:
        log.warning("Hint ignored: it names nothing")
        return None


@cache
def open_worker_context() -> WorkerContext:
    """Return the context of this worker process. The first call, after fork, starts the heartbeat."""
    heartbeat = Heartbeat(wiring.resolve_effects().read_fingerprints())
    return start_context(heartbeat)


def start_context(heartbeat: Heartbeat) -> WorkerContext:
    """Start the heartbeat of a worker process, and return its context."""
    heartbeat.start()

    def retire() -> None:
        """End this process as a stop signal would: its supervisor starts another one."""
        heartbeat.retire(settings.SIGNOFF_DRAIN_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)

    return WorkerContext(
        handler=wiring.resolve_effects(),
        approvals=wiring.resolve_approvals(),
        effect_pool=EffectPool(wiring.resolve_effects(), replace=retire),
        heartbeat=heartbeat,
    )


def drain() -> None:
    """Claim no more runs and release the claimed ones in time. Safe in signal handlers. Repeating it has no effect."""
    if open_worker_context.cache_info().currsize:
        open_worker_context().heartbeat.drain(settings.SIGNOFF_DRAIN_SECONDS)


def is_hung() -> bool:
    """Return whether this worker ends because its tools hang."""
    return (
        bool(open_worker_context.cache_info().currsize) and open_worker_context().heartbeat.is_hung
    )


def stop() -> bool:
    """Stop the heartbeat and close the engine's connections, at the end of a worker process.

    Returns False if an effect is still running, in a thread that cannot be ended.
    """
    busy = False
    broker.flush(FLUSH_SECONDS)  # of the runs that it released
    broker.stop_listening()  # its thread may end with the process before it does this
    if open_worker_context.cache_info().currsize:
        busy = open_worker_context().effect_pool.is_busy()
        open_worker_context().heartbeat.stop()
        open_worker_context.cache_clear()
    pool.close()
    return not busy

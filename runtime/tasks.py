"""Defines the Celery tasks: advance a run, try a prompt, replay a run, preview an edit.

Sets up, drains and stops a worker process.
"""

import logging
import os
import signal
from functools import cache
from uuid import UUID

from celery import shared_task
from django.conf import settings

from runtime import broker
from runtime.broker import ADVANCE, PREVIEW_EDIT, REPLAY_RUN, TRY_PROMPT
from runtime.execution import edit_previews
from runtime.execution.claim import advance
from runtime.execution.effects.pool import EffectPool
from runtime.execution.heartbeat import Heartbeat
from runtime.execution.recorded import queued_replay, queued_trial
from runtime.execution.worker import WorkerContext
from runtime.ports import wiring
from runtime.store import pool

log = logging.getLogger(__name__)


@shared_task(name=ADVANCE)
def advance_run(run: object = None, *_: object, **__: object) -> None:
    """Advance the run as far as possible. A hint for a run that is not due, or for no run, has no effect."""
    if (named := _named(run)) is not None:
        advance(named, worker_context())


@shared_task(name=TRY_PROMPT)
def try_prompt(trial: object = None, *_: object, **__: object) -> None:
    """Perform a trial of a prompt that waits. A hint for another one, or in a draining process, has no effect."""
    draining = worker_context().heartbeat.draining
    if (named := _named(trial)) is not None and not draining.started:
        queued_trial.perform(
            named, handler=worker_context().handler, drains=lambda: draining.started
        )


@shared_task(name=REPLAY_RUN)
def replay_run(replay: object = None, *_: object, **__: object) -> None:
    """Perform a replay that waits. A hint for another one, or in a draining process, has no effect."""
    context = worker_context()
    draining = context.heartbeat.draining
    if (named := _named(replay)) is not None and not draining.started:
        queued_replay.perform(
            named,
            handler=context.handler,
            approvals=context.approvals,
            drains=lambda: draining.started,
        )


@shared_task(name=PREVIEW_EDIT)
def preview_edit(preview: object = None, *_: object, **__: object) -> None:
    """Perform a preview that waits. A hint for another one, or in a draining process, has no effect."""
    context = worker_context()
    if (named := _named(preview)) is not None and not context.heartbeat.draining.started:
        edit_previews.perform(named, handler=context.handler, effect_pool=context.effect_pool)


def _named(given: object) -> UUID | None:
    try:
        return UUID(given if isinstance(given, str) else "")
    except ValueError:
        log.warning("Hint ignored: it names nothing")
        return None


@cache
def worker_context() -> WorkerContext:
    """Return the context of this worker process. The first call, after fork, starts the heartbeat."""
    heartbeat = Heartbeat(wiring.effects().fingerprints())
    context = start_context(heartbeat)
    broker.start_listening(lambda: heartbeat.draining.started)
    return context


def start_context(heartbeat: Heartbeat) -> WorkerContext:
    """Start the heartbeat of a worker process, and return its context."""
    heartbeat.start()

    def retire() -> None:
        """End this process as a stop signal would: its supervisor starts another one."""
        heartbeat.retire(settings.SIGNOFF_DRAIN_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)

    return WorkerContext(
        handler=wiring.effects(),
        approvals=wiring.approvals(),
        effect_pool=EffectPool(wiring.effects(), replace=retire),
        heartbeat=heartbeat,
    )


def drain() -> None:
    """Claim no more runs and release the claimed ones in time. Safe in signal handlers. Repeating it has no effect."""
    if worker_context.cache_info().currsize:
        worker_context().heartbeat.drain(settings.SIGNOFF_DRAIN_SECONDS)


def is_hung() -> bool:
    """Return whether this worker ends because its tools hang."""
    return bool(worker_context.cache_info().currsize) and worker_context().heartbeat.is_hung


def stop() -> bool:
    """Stop the heartbeat and close the engine's connections, at the end of a worker process.

    Returns False if an effect is still running, in a thread that cannot be ended.
    """
    busy = False
    broker.stop_listening()  # its thread may end with the process before it does this
    if worker_context.cache_info().currsize:
        busy = worker_context().effect_pool.is_busy()
        worker_context().heartbeat.stop()
        worker_context.cache_clear()
    pool.close()
    return not busy

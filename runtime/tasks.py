"""The worker's doors: the Celery task that advances a run, and the bench its process works at."""

import logging
import os
import signal
from functools import cache
from uuid import UUID

from celery import current_app, shared_task
from django.conf import settings

from runtime.broker.dispatch import ADVANCE, ISOLATED
from runtime.execution.claim import advance
from runtime.execution.effects.pool import EffectPool
from runtime.execution.heartbeat import Heartbeat
from runtime.execution.runner import WorkerContext
from runtime.ports import wiring
from runtime.store import pool

log = logging.getLogger(__name__)


@shared_task(name=ADVANCE)
def advance_run(run: object = None, *_: object, **__: object) -> None:
    """Take the run as far as it goes; a hint for a run that needs nothing, or for none, does nothing."""
    try:
        named = UUID(run if isinstance(run, str) else "")
    except ValueError:
        log.warning("a hint that names no run was thrown away")
        return
    advance(named, bench(), isolated=bench().heartbeat.isolated)


@cache
def bench() -> WorkerContext:
    """Made on first use, after fork: the heartbeat starts beating with it."""
    alone = set(current_app.amqp.queues.consume_from) == {ISOLATED}
    heartbeat = Heartbeat(wiring.effects().fingerprints(), isolated=alone)
    heartbeat.start()
    return WorkerContext(
        handler=wiring.effects(),
        gatekeeper=wiring.gatekeeper(),
        effect_pool=EffectPool(wiring.effects(), replace=_retire),
        heartbeat=heartbeat,
    )


def drain() -> None:
    """Take no more runs, and let go of those there are in time. For signal handlers too; again changes nothing."""
    if bench.cache_info().currsize:
        bench().heartbeat.drain(settings.ABEYANCE_DRAIN_SECONDS)


def is_hung() -> bool:
    """Whether this worker ends because its tools hang."""
    return bool(bench.cache_info().currsize) and bench().heartbeat.is_hung


def _retire() -> None:
    """End this process as if it were told to stop: its supervisor starts another one."""
    bench().heartbeat.retire(settings.ABEYANCE_DRAIN_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)


def stop() -> bool:
    """At the end of a worker process: stop beating and close what the engine opened.

    False if an effect is still under way, in a thread that cannot be ended.
    """
    busy = False
    if bench.cache_info().currsize:
        busy = bench().effect_pool.is_busy()
        bench().heartbeat.stop()
        bench.cache_clear()
    pool.close()
    return not busy

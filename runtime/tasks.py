"""The worker's doors: the Celery task that advances a run, and the bench its process works at."""

from functools import cache
from uuid import UUID

from celery import shared_task

from runtime import database, ports
from runtime.advance import advance
from runtime.coordinator import Bench
from runtime.dispatch import ADVANCE
from runtime.executor import Executor
from runtime.heartbeat import Heartbeat


@shared_task(name=ADVANCE)
def advance_run(run: str) -> None:
    """Take the run as far as it goes; a hint for a run that needs nothing does nothing."""
    advance(UUID(run), bench())


@cache
def bench() -> Bench:
    """Made on first use, after fork: the heartbeat starts beating with it."""
    heartbeat = Heartbeat()
    heartbeat.start()
    return Bench(
        handler=ports.effects(),
        gatekeeper=ports.gatekeeper(),
        executor=Executor(ports.effects()),
        heartbeat=heartbeat,
    )


def stop() -> None:
    """At the end of a worker process: stop beating and close what the engine opened."""
    if bench.cache_info().currsize:
        bench().heartbeat.stop()
        bench.cache_clear()
    database.close()

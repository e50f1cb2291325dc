"""Tries suspected runs: `python -m config.worker --queues isolated` starts processes of this module for their groups.

`runtime.execution.crash_loops` says why, and in which groups.
"""

import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from uuid import UUID

if __name__ == "__main__":
    gc.disable()  # before the imports below; config.celery enables it

import django
from django.conf import settings

from config import celery


def supervise(max_groups: int) -> int:
    """Try suspected runs, so many groups at once, until a stop signal. Return the exit code."""
    django.setup()
    celery.equip("isolated")
    from runtime.execution import crash_loops
    from runtime.execution.heartbeat import Heartbeat
    from runtime.ports import wiring

    stop = threading.Event()
    _on_stop(stop.set)
    heartbeat = Heartbeat(wiring.resolve_effects().read_fingerprints(), isolated=True)
    heartbeat.start()
    command = [sys.executable, "-m", "config.isolated"]
    crash_loops.run(stop, crash_loops.SuspectTrials(command, max_groups))
    heartbeat.stop()
    return 0


def main(arguments: Sequence[str]) -> int:
    """Be the worker of this id: try the runs of each line of the input, and answer each line. Return the exit code."""
    worker, answers = UUID(arguments[0]), int(arguments[1])
    os.environ.pop("PGAPPNAME", None)  # of the process that started this one
    celery.share_connections()
    django.setup()
    celery.equip("isolated")
    from runtime import tasks
    from runtime.execution.claim import advance
    from runtime.execution.heartbeat import Heartbeat
    from runtime.ports import wiring
    from runtime.store import pool

    heartbeat = Heartbeat(
        wiring.resolve_effects().read_fingerprints(), worker=worker, isolated=True
    )
    context = tasks.start_context(heartbeat)

    lines: SimpleQueue[str] = SimpleQueue()

    def drain() -> None:
        heartbeat.drain(settings.SIGNOFF_DRAIN_SECONDS)
        lines.put("")

    _on_stop(drain)
    threading.Thread(target=_read_lines, args=(lines, drain), daemon=True).start()
    while (line := lines.get()) and not context.effect_pool.is_busy():
        runs = [UUID(run) for run in line.split()]
        with ThreadPoolExecutor(len(runs)) as threads:
            attempts = [threads.submit(advance, run, context, isolated=True) for run in runs]
        for attempt in attempts:
            if (problem := attempt.exception()) is not None:
                logging.getLogger(__name__).error("A run was not tried", exc_info=problem)
        os.write(answers, b".")
    is_busy = context.effect_pool.is_busy()
    heartbeat.stop()
    pool.close()
    if is_busy:  # Python would wait for the thread of an effect whose run was released
        logging.shutdown()
        os._exit(0)
    return 0


def _on_stop(act: Callable[[], object]) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: act())


def _read_lines(lines: "SimpleQueue[str]", drain: Callable[[], object]) -> None:
    """Pass each line on. Drain at the end of the input: its writer has ended, or needs this process no longer."""
    for line in sys.stdin:
        lines.put(line)
    drain()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

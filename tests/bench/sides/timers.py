"""A worker of ours that times its own functions: processor time of each thread, each function without those it calls.

`python -m tests.bench.sides.timers` runs it. It times the public functions of our packages, and psycopg's execute. On
SIGUSR2 it writes the sums so far to the file that ABEYANCE_BENCH_TIMERS names. The timers themselves cost time too.
"""

import functools
import inspect
import json
import os
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

FILE = "ABEYANCE_BENCH_TIMERS"
ROOMS = ("runtime", "agents", "approvals")
ALL, MAIN = "all threads", "the main thread: Celery's consumer"

Sums = dict[str, list[int]]  # nanoseconds, calls


class Timers:
    """The sums of every thread; each thread writes only its own."""

    def __init__(self) -> None:
        self._own = threading.local()
        self._all: list[Sums] = []

    def around(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function with a timer around it."""
        clock = time.thread_time_ns

        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            inner, own = self._thread()
            inner.append(0)
            began = clock()
            try:
                return function(*args, **kwargs)
            finally:
                took = clock() - began
                sums = own[name]
                sums[0] += took - inner.pop()
                sums[1] += 1
                if inner:
                    inner[-1] += took

        return timed

    def sums(self) -> Sums:
        """Return the sums of all threads."""
        found: Sums = defaultdict(lambda: [0, 0])
        for own in list(self._all):
            for name, (took, calls) in list(own.items()):
                found[name][0] += took
                found[name][1] += calls
        return dict(found)

    def _thread(self) -> tuple[list[int], Sums]:
        """Return the time that this thread's running functions spent in others, and its sums."""
        try:
            found: tuple[list[int], Sums] = self._own.found
        except AttributeError:
            found = self._own.found = [], defaultdict(lambda: [0, 0])
            self._all.append(found[1])
        return found


def put_in(timers: Timers) -> None:
    """Put a timer around each timed function, in every module that imported it."""
    modules = [one for name, one in list(sys.modules.items()) if name.split(".")[0] in ROOMS]
    timed: dict[FunctionType, Callable[..., Any]] = {}
    for module in modules:
        for name, function in _functions(module, module):
            timed[function] = timers.around(f"{module.__name__}.{name}", function)
        for kind in [one for one in vars(module).values() if isinstance(one, type)]:
            if kind.__module__ == module.__name__:
                for name, function in _functions(kind, module):
                    full = f"{module.__name__}.{kind.__name__}.{name}"
                    setattr(kind, name, timers.around(full, function))
    for module in modules:
        for name, value in list(vars(module).items()):
            if isinstance(value, FunctionType) and value in timed:
                setattr(module, name, timed[value])


def _functions(owner: Any, module: ModuleType) -> Iterator[tuple[str, FunctionType]]:
    """The public functions that are defined there and return when they are through."""
    for name, value in list(vars(owner).items()):
        if not isinstance(value, FunctionType) or name.startswith("_"):
            continue
        inner = inspect.unwrap(value)
        if value.__module__ == module.__name__ and not (
            inspect.isgeneratorfunction(inner) or inspect.iscoroutinefunction(inner)
        ):
            yield name, value


def equip() -> None:
    """Begin to time this process, and write the sums on SIGUSR2."""
    import psycopg

    timers = Timers()
    put_in(timers)
    psycopg.Cursor.execute = timers.around("psycopg execute", psycopg.Cursor.execute)  # type: ignore[method-assign]
    main = time.pthread_getcpuclockid(threading.main_thread().ident or 0)

    def write(*_: object) -> None:
        sums = timers.sums()
        sums[ALL] = [time.process_time_ns(), 0]
        sums[MAIN] = [int(1e9 * time.clock_gettime(main)), 0]
        path = Path(os.environ[FILE])
        path.with_suffix(".new").write_text(json.dumps(sums))
        path.with_suffix(".new").rename(path)

    signal.signal(signal.SIGUSR2, write)


if FILE in os.environ:
    from celery import signals

    @signals.worker_ready.connect
    def _equip(**_: Any) -> None:
        equip()


if __name__ == "__main__":
    from config import worker

    sys.exit(worker.main(sys.argv[1:]))

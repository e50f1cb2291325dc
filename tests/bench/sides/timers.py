"""A worker of ours under a profiler: the processor time of each thread by function, and of libraries by package.

`python -m tests.bench.sides.timers` runs it. On SIGUSR2 it writes the sums so far to the file that
SIGNOFF_BENCH_TIMERS names. The profiler itself costs time too.
"""

import cProfile
import json
import os
import signal
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path

from config import worker
from config.env.environment import ROOT

FILE = "SIGNOFF_BENCH_TIMERS"
ALL, MAIN = "all threads", "the main thread: Celery's consumer"

Sums = dict[str, list[int]]  # nanoseconds, calls
_profiles: list[cProfile.Profile] = []


def _begin(*_: object) -> None:
    """Profile this thread, which has just begun."""
    _profiles.append(cProfile.Profile(time.thread_time_ns, 1.0))
    _profiles[-1].enable()


def _write(*_: object) -> None:
    sums: Sums = defaultdict(lambda: [0, 0])
    for profile in _profiles:
        profile.snapshot_stats()
        for (file, _line, function), row in profile.stats.items():
            entry = sums[_named(file, function)]
            entry[0] += int(row[2])
            entry[1] += row[1]
    main = time.pthread_getcpuclockid(threading.main_thread().ident or 0)
    sums[ALL] = [time.process_time_ns(), 0]
    sums[MAIN] = [int(1e9 * time.clock_gettime(main)), 0]
    path = Path(os.environ[FILE])
    path.with_suffix(".new").write_text(json.dumps(sums))
    path.with_suffix(".new").rename(path)


def _named(file: str, function: str) -> str:
    """The function with its module if it is ours, else the library that it belongs to."""
    if "site-packages/" in file:
        return file.partition("site-packages/")[2].split("/")[0].removesuffix(".py")
    if file.startswith(f"{ROOT}/"):
        return f"{file.removeprefix(f'{ROOT}/').removesuffix('.py').replace('/', '.')}.{function}"
    return "C" if file == "~" else "Python's library"


if __name__ == "__main__":
    threading.setprofile(_begin)
    signal.signal(signal.SIGUSR2, _write)
    sys.exit(worker.main(sys.argv[1:]))

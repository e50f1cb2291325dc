"""Named points at which a test may end this process as a crash would; nothing happens unless one is armed.

They are in the one function that commits a step and in the one call of the effect handler's port. So every kind of
commit and of effect, at every depth, has a point. The kind of a commit is the type of its last event.

`SIGNOFF_KILL_POINT` arms one by name. `SIGNOFF_KILL_ONCE` is the path of a file that the process makes before it
ends; a process that finds the file continues. `SIGNOFF_KILL_LOG` records every point passed.
"""

import os
import signal
from functools import cache
from pathlib import Path

FAILPOINT = "SIGNOFF_KILL_POINT"
ONCE = "SIGNOFF_KILL_ONCE"
LOG = "SIGNOFF_KILL_LOG"


def hit(moment: str, kind: str, depth: int) -> None:
    """Pass the point `moment:kind:depth`, or end the process there."""
    armed, log = _read_armed_point()
    if armed is None and log is None:
        return
    point = f"{moment}:{kind}:{depth}"
    if log is not None:
        with Path(log).open("a") as file:
            file.write(point + "\n")
    if point != armed:
        return
    once = os.environ.get(ONCE)
    if once is not None:
        try:
            os.close(os.open(once, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
    os.kill(os.getpid(), signal.SIGKILL)


@cache
def _read_armed_point() -> tuple[str | None, str | None]:
    """Read the armed point and the path of the log, once in each process."""
    return os.environ.get(FAILPOINT), os.environ.get(LOG)


os.register_at_fork(after_in_child=_read_armed_point.cache_clear)

"""Starts programs so that they do not outlive us unnoticed: own group, a mark to know them by, a signal when we die."""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from config.local.processes.users import Account

MARK = "ABEYANCE_HOME_ID"  # in the environment of everything that belongs to one data folder

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def start(
    command: Sequence[str | Path],
    *,
    account: Account,
    environment: Mapping[str, str],
    folder: Path,
    log: IO[bytes] | int,
    when_we_die: signal.Signals = signal.SIGKILL,
    pass_fds: Sequence[int] = (),
    core: int | None = None,
) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own, writing to `log`; `hand_down` are descriptors it keeps.

    With `core`, one of `cores()`, it and all that it starts stay on that one.
    """
    return subprocess.Popen(
        [str(part) for part in command],
        env=dict(environment),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        pass_fds=tuple(pass_fds),
        preexec_fn=_on_linux(when_we_die, core),  # noqa: PLW1509 - we have no threads here
        **account.popen(),
    )


def signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send a signal to a program and all that it started."""
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):  # gone; macOS says the latter of a zombie
        pass


def how_it_ended(process: subprocess.Popen[bytes]) -> str:
    """Return the exit code of an ended process, or the name of the signal that ended it."""
    if process.returncode < 0:
        with suppress(ValueError):
            return signal.Signals(-process.returncode).name
    return f"exit code {process.returncode}"


def plain_environment() -> dict[str, str]:
    """What a server may know of our environment: enough to run, none of our secrets."""
    known = ("PATH", "HOME", "TMPDIR", "TZ", "LD_LIBRARY_PATH")
    return {name: os.environ[name] for name in known if name in os.environ} | {"LANG": "C"}


def cores() -> Sequence[int]:
    """The cores that we may use; empty where a program cannot be kept on one."""
    return sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else ()


def _on_linux(number: signal.Signals, core: int | None) -> Callable[[], None] | None:
    """What a child does before it becomes its program: it has the kernel tell it that we have died, even by kill -9,
    and goes to its core. Elsewhere the next start cleans up, and nobody has a core.
    """
    if _libc is None:
        return None
    parent = os.getpid()

    def ask() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
        if os.getppid() != parent:  # it died before we could ask
            os.kill(os.getpid(), signal.SIGKILL)
        if core is not None:
            with suppress(OSError):  # it may have been taken from us since we looked
                os.sched_setaffinity(0, {core})

    return ask

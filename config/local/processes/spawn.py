"""Starts child processes that cannot outlive the launcher unnoticed: own group, a mark, a signal when it dies."""

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

MARK = "SIGNOFF_HOME_ID"  # in the environment of every process of one data folder

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
    """Start a program in a session of its own, writing to `log`. It inherits the descriptors `pass_fds`.

    With `core`, one of `cores()`, the program and its children stay on that core.
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
        preexec_fn=_make_child_setup(when_we_die, core),  # noqa: PLW1509 - the launcher has no threads
        **account.build_popen_arguments(),
    )


def signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send a signal to a program and its children."""
    try:
        os.killpg(process.pid, number)
    except (
        ProcessLookupError,
        PermissionError,
    ):  # it has ended; macOS raises the latter for a zombie
        pass


def describe_end(process: subprocess.Popen[bytes]) -> str:
    """Return the exit code of an ended process, or the name of the signal that ended it."""
    if process.returncode < 0:
        with suppress(ValueError):
            return signal.Signals(-process.returncode).name
    return f"exit code {process.returncode}"


def build_plain_environment() -> dict[str, str]:
    """Return the variables that a server needs to run, without secrets."""
    names = ("PATH", "HOME", "TMPDIR", "TZ", "LD_LIBRARY_PATH")
    return {name: os.environ[name] for name in names if name in os.environ} | {"LANG": "C"}


def list_cores() -> Sequence[int]:
    """List the cores that we may use; empty if the system cannot pin a program to one."""
    return sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else ()


def _make_child_setup(number: signal.Signals, core: int | None) -> Callable[[], None] | None:
    """Return the function that a child runs before its program; None outside Linux.

    The kernel then signals the child when the launcher dies, even by kill -9, and the child stays on its core. On other
    systems the next start cleans up, and no program is pinned to a core.
    """
    if _libc is None:
        return None
    parent = os.getpid()

    def ask() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
        if os.getppid() != parent:  # the launcher died before the call
            os.kill(os.getpid(), signal.SIGKILL)
        # A step passes between threads 12 times: two free workers made 534 steps a second, pinned ones 812
        if core is not None:
            with suppress(OSError):  # the core may have been withdrawn since `list_cores`
                os.sched_setaffinity(0, {core})

    return ask

"""Forks a process that has imported the application, instead of starting programs that each import it for seconds.

A fork has its own variables and settings, and shows its own command and variables in /proc. It proves nothing about the
start of a program: tests of that start programs. Only Linux can fork so; elsewhere every program is started.
"""

import ctypes
import importlib
import logging.config
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing.forkserver import ensure_running
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import IO, Any, cast

from config.env.environment import ROOT
from config.local.processes import spawn
from config.local.processes.users import Account, read_starter_account
from tests.support import commands

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(["tests.support.preload"])

_ROOM = "ROOM_FOR_VARIABLES"  # of the server of forks: its children write theirs into this place
_ROOM_BYTES = 16_384
_OTHER_APPS = "SIGNOFF_OIDC"  # variables with which Django has more apps begin so
_AGENTS = "tests.support.scripted_agents"  # their modules read variables while they are imported
_OF_SETUP = ("INSTALLED_APPS", "TEMPLATES")  # settings that Django has adapted
_HANDLED = (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGUSR1, signal.SIGUSR2)


class Fork:
    """A forked process with the methods of `subprocess.Popen` that its users call."""

    def __init__(self, process: BaseProcess) -> None:
        self._process = process
        self.pid = process.pid or 0

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if (code := self.returncode) is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start(
    words: Sequence[object], log: Path, *, env: Mapping[str, str], account: Account | None = None
) -> commands.Process:
    """Fork a Python program of the checkout in a session of its own, writing to `log`, or start it."""
    account = account or read_starter_account()
    if not _is_possible(env):
        return commands.start(words, log, env=env, **account.build_popen_arguments())
    log.touch()
    command = [str(word) for word in words]
    fork = Fork(begin(_be, command, dict(env), (os.devnull, str(log), str(log)), account))
    return cast("commands.Process", fork)


def run(*words: object, env: Mapping[str, str]) -> commands.Done:
    """Run a Python program of the checkout in a fork, and wait for its end."""
    command = [sys.executable, *map(str, words)]
    if not _is_possible(env):
        return commands.run(*command, env=env)
    with tempfile.TemporaryDirectory() as folder:
        files = [f"{folder}/{name}" for name in ("out", "error")]
        fork = Fork(begin(_be, command, dict(env), (os.devnull, *files), read_starter_account()))
        code = fork.wait(commands.WITHIN)
        out, error = (Path(file).read_text() for file in files)
    return commands.Done(command, code, out, error)


def _is_possible(environment: Mapping[str, str]) -> bool:
    """A launcher gives its processes an object store, but a fork reads the settings as a launcher too."""
    if "SIGNOFF_ARCHIVE" in environment and "SIGNOFF_OBJECT_STORE" not in environment:
        return False
    return sys.platform == "linux" and not any(name.startswith(_OTHER_APPS) for name in environment)


def begin(act: Callable[..., object], *arguments: object, daemon: bool = False) -> BaseProcess:
    """Call a function in a fork, which has yet to `adopt` variables."""
    os.environ[_ROOM] = "x" * _ROOM_BYTES
    try:
        ensure_running()
    finally:
        del os.environ[_ROOM]
    process = _SERVER.Process(target=act, args=arguments, daemon=daemon)
    process.start()
    return process


def adopt(environment: Mapping[str, str]) -> None:
    """Have a fork read its settings from these variables."""
    os.environ.clear()
    os.environ.update(environment)
    from django.apps import apps
    from django.conf import settings
    from django.db import connections

    from config.broker import transport
    from config.celery import app

    module = importlib.reload(sys.modules["config.settings"])
    for name in dir(module):
        if name.isupper() and name not in _OF_SETUP:
            setattr(settings, name, getattr(module, name))
    with suppress(AttributeError):  # imports need not look at it
        del connections["default"]
    connections._settings = None  # type: ignore[attr-defined]
    connections.__dict__.pop("settings", None)
    logging.config.dictConfig(settings.LOGGING)
    app.conf.update(transport.build_celery_settings(settings.REDIS_URL))
    apps.get_app_config("config").ready()


def _be(
    command: list[str], environment: dict[str, str], files: tuple[str, str, str], account: Account
) -> None:
    """Be the process of this command, with these files as its standard ones. A launcher forks its processes too."""
    spawn.start = _fork
    flags = (os.O_RDONLY, *[os.O_WRONLY | os.O_APPEND | os.O_CREAT] * 2)
    _become(
        command, environment, [os.open(*file) for file in zip(files, flags, strict=True)], account
    )


def _fork(
    command: Sequence[str | Path],
    *,
    account: Account,
    environment: Mapping[str, str],
    log: IO[bytes] | int,
    pass_fds: Sequence[int] = (),
    core: int | None = None,
    **more: Any,
) -> Any:
    """Be `spawn.start`, but fork Python programs."""
    known = {"account": account, "environment": environment}
    if command[0] != sys.executable:
        return _start(command, log=log, pass_fds=pass_fds, core=core, **known, **more)
    file = log if isinstance(log, int) else log.fileno()
    files = (os.open(os.devnull, os.O_RDONLY), file, file)
    process = multiprocessing.get_context("fork").Process(
        target=_become,
        args=([str(word) for word in command], environment, files, account, pass_fds),
        kwargs={"arrange": spawn._make_child_setup(signal.SIGKILL, core)},
    )
    process.start()
    os.close(files[0])
    return Fork(process)


_start: Any = spawn.start


def _become(
    command: list[str],
    environment: Mapping[str, str],
    files: Sequence[int],
    account: Account,
    pass_fds: Sequence[int] = (),
    arrange: Callable[[], None] | None = None,
) -> None:
    _reset_signals()
    os.setsid()
    _use_files(files, pass_fds)
    _show(command, environment)
    os.chdir(ROOT)
    if account.switch:
        os.setgroups([])
        os.setgid(account.gid)
        os.setuid(account.uid)
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
    if arrange is not None:
        arrange()
    adopt(environment)
    for name in [name for name in sys.modules if name.startswith(_AGENTS)]:
        del sys.modules[name]
    if command[1] == "-m":
        sys.argv = command[2:]
        runpy.run_module(command[2], run_name="__main__", alter_sys=True)
    else:
        sys.argv = command[1:]
        runpy.run_path(command[1], run_name="__main__")


_PR_SET_DUMPABLE = 4  # else /proc belongs to root, where psutil reads about the process itself


def _reset_signals() -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in _HANDLED:
        signal.signal(number, signal.SIG_DFL)


def _use_files(files: Sequence[int], pass_fds: Sequence[int]) -> None:
    """Have these as the standard files, and close what other processes have open."""
    for number, file in enumerate(files):
        os.dup2(file, number)
    for path in list(Path("/proc/self/fd").iterdir()):
        if int(path.name) > 2 and int(path.name) not in pass_fds:
            with suppress(OSError):  # of the listing itself
                os.close(int(path.name))
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115


def _show(command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Write command and variables where /proc shows those with which the server of forks was started."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    variables = [f"{name}={value}" for name, value in environment.items()]
    for begins, texts in ((45, command), (47, variables)):  # arg_start and env_start of proc(5)
        start, room = int(fields[begins]), int(fields[begins + 1]) - int(fields[begins])
        block = "".join(f"{text}\0" for text in texts).encode()
        assert len(block) < room or texts is command, f"{room} bytes for {len(block)}"
        ctypes.memset(start, 0, room)
        ctypes.memmove(start, block, min(len(block), room - 1))

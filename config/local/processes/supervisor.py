"""Keeps processes running: starts them, restarts dead ones with growing pauses, and stops them in order.

Each has one log file, which is rotated at a start; those of three earlier starts are kept.
"""

import math
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO

from config.local.errors import LocalError
from config.local.processes import spawn

MIN_PAUSE_SECONDS = 0.1
MAX_PAUSE_SECONDS = 2.0
CHECK_SECONDS = 5.0  # seconds between two checks of all processes
STABLE_SECONDS = 10.0  # seconds after which a process counts as running well
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
KEPT_LOGS = 3
_FATAL = re.compile(r"(?:FATAL|PANIC): +(.+)")  # as Postgres writes them


class Stop(BaseException):
    """Raised by a wait after a stop signal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A process to keep running. `start` starts it and returns when it is ready.

    `stop_timeout` is how many seconds it has to stop after `stop_signal`. Services of a later `stop_order` start
    earlier and are stopped later.
    """

    name: str
    start: Callable[[], subprocess.Popen[bytes]]
    stop_order: int
    stop_timeout: float
    stop_signal: signal.Signals = signal.SIGTERM


class SignalPipe:
    """Ends a wait as soon as a child process dies or a stop signal arrives (the self-pipe trick)."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        for end in (self._read, self._write):
            os.set_blocking(end, False)
        self.stop_requested = False
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in STOP_SIGNALS:
            signal.signal(number, self._stop)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def pause(self, seconds: float) -> None:
        """Wait at most so many seconds. Raise Stop after a stop signal."""
        if not self.stop_requested:
            with suppress(InterruptedError):
                select.select([self._read], [], [], seconds)
            with suppress(BlockingIOError):
                os.read(self._read, 4096)
        if self.stop_requested:
            raise Stop

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.stop_requested = True


class Supervisor:
    """Runs services and restarts those that end. `changed` gets the ids of living processes at each change."""

    def __init__(
        self,
        pipe: SignalPipe,
        say: Callable[[str], None],
        changed: Callable[[Sequence[int]], None],
    ) -> None:
        self._pipe = pipe
        self._say = say
        self._changed = changed
        self._services: list[_Running] = []

    def start(self, service: Service) -> None:
        """Start a service and keep it running. Errors of its `start` pass through."""
        running = _Running(service=service)
        self._services.append(running)
        self._begin(running)

    def watch(self, look: Callable[[], None] = lambda: None, every: float = CHECK_SECONDS) -> None:
        """Restart processes that die, until Stop, and call `look` at least once in `every` seconds."""
        while True:
            self.check()
            look()
            waiting = [one.restart_at for one in self._services if one.process is None]
            waiting += [one.kill_at for one in self._services if one.kill_at is not None]
            due_in = min(waiting, default=math.inf) - time.monotonic()
            self._pipe.pause(min(every, max(0.0, due_in)))

    def replace(self, matches: Callable[[Service], bool]) -> None:
        """Stop each of these services, with its time to drain, and start it again."""
        for running in self._services:
            if (
                running.process is None
                or running.kill_at is not None
                or not matches(running.service)
            ):
                continue
            running.kill_at = time.monotonic() + running.service.stop_timeout
            with suppress(ProcessLookupError):
                running.process.send_signal(running.service.stop_signal)

    def check(self) -> None:
        """Check each service once."""
        for running in self._services:
            process = running.process
            if process is None:
                if time.monotonic() < running.restart_at:
                    continue
                try:
                    self._begin(running)
                except LocalError as error:
                    self._say(f"{error}; again in {running.schedule_restart():g} s")
                else:
                    self._say(f"{running.service.name} is running again")
            elif process.poll() is not None:
                spawn.signal_group(process, signal.SIGKILL)  # and its children
                if time.monotonic() - running.began_at > STABLE_SECONDS:
                    running.deaths = 0
                running.process = None
                if running.kill_at is not None:
                    running.kill_at, running.restart_at = None, 0.0
                    continue
                running.ends += 1
                how, pause = spawn.describe_end(process), running.schedule_restart()
                self._say(f"{running.service.name} ended ({how}); again in {pause:g} s")
            elif running.kill_at is not None and time.monotonic() >= running.kill_at:
                spawn.signal_group(process, signal.SIGKILL)  # SIGCHLD wakes this loop

    def ends(self, name: str) -> int:
        """Return how often a service ended since its first start."""
        return next(running.ends for running in self._services if running.service.name == name)

    def stop(self) -> None:
        """Stop all services in their stop order. Services with the same number stop together."""
        for stop_order in sorted({running.service.stop_order for running in self._services}):
            going = [
                (running.service, running.process)
                for running in self._services
                if running.service.stop_order == stop_order and running.process is not None
            ]
            for service, process in going:
                with suppress(ProcessLookupError):
                    process.send_signal(service.stop_signal)
            began_at = time.monotonic()
            for service, process in going:
                seconds_left = began_at + service.stop_timeout - time.monotonic()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, seconds_left))
                spawn.signal_group(process, signal.SIGKILL)
                process.wait()
        self._services.clear()
        self._changed([])

    def _begin(self, running: "_Running") -> None:
        running.process = running.service.start()
        running.began_at = time.monotonic()
        self._changed([one.process.pid for one in self._services if one.process is not None])


@dataclass(slots=True, kw_only=True)
class _Running:
    service: Service
    process: subprocess.Popen[bytes] | None = None
    began_at: float = 0.0
    restart_at: float = 0.0
    deaths: int = 0  # in a row, each within SETTLED seconds of its start
    ends: int = 0
    kill_at: float | None = None  # the time at which a replaced process is killed

    def schedule_restart(self) -> float:
        """Schedule a restart after a pause that doubles each time. Return its seconds."""
        pause = min(MIN_PAUSE_SECONDS * float(2**self.deaths), MAX_PAUSE_SECONDS)
        self.deaths += 1
        self.restart_at = time.monotonic() + pause
        return pause


def rotate_logs(folder: Path) -> None:
    """Rotate the logs before a new start: name.log becomes name.1.log, and so on."""
    for newest in folder.glob("*.log"):
        stem = newest.name.removesuffix(".log")
        if "." in stem:
            continue
        for age in range(KEPT_LOGS, 0, -1):
            younger = folder / (f"{stem}.{age - 1}.log" if age > 1 else newest.name)
            if younger.exists():
                younger.replace(folder / f"{stem}.{age}.log")


def open_log(folder: Path, name: str) -> IO[bytes]:
    """Open the log of a process for appending."""
    return (folder / f"{name}.log").open("ab")


def find_logged_cause(folder: Path, name: str) -> str:
    """Return the cause of a server's end from its log, after a colon; empty if the log names none."""
    text = (folder / f"{name}.log").read_text(errors="replace")
    fatal = [one for one in _FATAL.findall(text) if not one.startswith("the database system is")]
    message = fatal[-1] if fatal else read_last_line(folder, name)
    return f": {message}" if message else ""


def read_last_line(folder: Path, name: str) -> str:
    """Return the last line of a process's log; empty if it wrote nothing."""
    lines = (folder / f"{name}.log").read_text(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else ""

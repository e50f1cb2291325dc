"""Keeps processes running: starts them, restarts what dies with growing pauses, stops each in order and in its time."""

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType

from config.local.errors import LocalError
from config.local.processes import spawn

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 2.0
LOOK = 5.0  # seconds between two checks of all processes
SETTLED = 10.0  # seconds after which a process counts as running well
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop(BaseException):
    """Somebody asked us to stop; raised where we wait, never in between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Something to keep running. `begin` starts it and returns when it can be used.

    `patience` is how many seconds it has to stop after `farewell`; jobs of a later `stage` start earlier
    and are stopped later.
    """

    name: str
    begin: Callable[[], subprocess.Popen[bytes]]
    stage: int
    patience: float
    farewell: signal.Signals = signal.SIGTERM


class Bell:
    """Signals ring it: waiting for it ends at once when a child has died or when we are to stop."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        for end in (self._read, self._write):
            os.set_blocking(end, False)
        self.asked = False
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in STOP_SIGNALS:
            signal.signal(number, self._stop)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def pause(self, seconds: float) -> None:
        """Wait, at most so long. Raises Stop once somebody has asked for it."""
        if not self.asked:
            with suppress(InterruptedError):
                select.select([self._read], [], [], seconds)
            with suppress(BlockingIOError):
                os.read(self._read, 4096)
        if self.asked:
            raise Stop

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.asked = True


class Supervisor:
    """Everything that we have started. `changed` is called with the living ids whenever they change."""

    def __init__(
        self,
        bell: Bell,
        say: Callable[[str], None],
        changed: Callable[[Sequence[int]], None],
    ) -> None:
        self._bell = bell
        self._say = say
        self._changed = changed
        self._jobs: list[_Running] = []

    def start(self, job: Job) -> None:
        """Start a job and keep it running from now on. Raises what its `begin` raises."""
        running = _Running(job=job)
        self._jobs.append(running)
        self._begin(running)

    def watch(self, look: Callable[[], None] = lambda: None, every: float = LOOK) -> None:
        """Restart processes that die, until Stop, and call `look` at least once in `every` seconds."""
        while True:
            self.tend()
            look()
            self._bell.pause(min(every, self._until_next()))

    def replace(self, wanted: Callable[[Job], bool]) -> None:
        """Stop each of these jobs, with its time to drain, and start it again."""
        for running in self._jobs:
            if running.process is None or running.leaves_by is not None or not wanted(running.job):
                continue
            running.leaves_by = time.monotonic() + running.job.patience
            with suppress(ProcessLookupError):
                running.process.send_signal(running.job.farewell)

    def tend(self) -> None:
        """Look after everything once."""
        for running in self._jobs:
            process = running.process
            if process is None:
                if time.monotonic() >= running.again_at:
                    self._revive(running)
            elif process.poll() is not None:
                self._bury(running)
            elif running.leaves_by is not None and time.monotonic() >= running.leaves_by:
                spawn.signal_group(process, signal.SIGKILL)  # SIGCHLD wakes this loop

    def ends(self, name: str) -> int:
        """How often a job ended since it was started first."""
        return next(running.ends for running in self._jobs if running.job.name == name)

    def stop(self) -> None:
        """Stop everything, the stages one after the other and the jobs of a stage together."""
        for stage in sorted({running.job.stage for running in self._jobs}):
            _stop_together([one for one in self._jobs if one.job.stage == stage])
        self._jobs.clear()
        self._changed([])

    def _begin(self, running: "_Running") -> None:
        running.process = running.job.begin()
        running.began_at = time.monotonic()
        self._changed([one.process.pid for one in self._jobs if one.process is not None])

    def _bury(self, running: "_Running") -> None:
        assert running.process is not None
        spawn.signal_group(running.process, signal.SIGKILL)  # whatever it leaves behind
        if time.monotonic() - running.began_at > SETTLED:
            running.deaths = 0
        how = spawn.how_it_ended(running.process)
        running.process = None
        if running.leaves_by is not None:
            running.leaves_by, running.again_at = None, 0.0
            return
        running.ends += 1
        self._say(f"{running.job.name} ended ({how}); again in {running.put_off():g} s")

    def _revive(self, running: "_Running") -> None:
        try:
            self._begin(running)
        except LocalError as error:
            self._say(f"{error}; again in {running.put_off():g} s")
        else:
            self._say(f"{running.job.name} is running again")

    def _until_next(self) -> float:
        waiting = [one.again_at for one in self._jobs if one.process is None]
        waiting += [one.leaves_by for one in self._jobs if one.leaves_by is not None]
        return max(0.0, min(waiting, default=time.monotonic() + LOOK) - time.monotonic())


@dataclass(slots=True, kw_only=True)
class _Running:
    job: Job
    process: subprocess.Popen[bytes] | None = None
    began_at: float = 0.0
    again_at: float = 0.0
    deaths: int = 0  # in a row, each soon after the start
    ends: int = 0
    leaves_by: float | None = None  # the time at which a replaced process is killed

    def put_off(self) -> float:
        """Have it started again after a pause that doubles each time; how many seconds."""
        pause = min(FIRST_PAUSE * float(2**self.deaths), LONGEST_PAUSE)
        self.deaths += 1
        self.again_at = time.monotonic() + pause
        return pause


def _stop_together(jobs: Sequence[_Running]) -> None:
    going = [(one.job, one.process) for one in jobs if one.process is not None]
    for job, process in going:
        with suppress(ProcessLookupError):
            process.send_signal(job.farewell)
    began_at = time.monotonic()
    for job, process in going:
        left = began_at + job.patience - time.monotonic()
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, left))
        spawn.signal_group(process, signal.SIGKILL)
        process.wait()

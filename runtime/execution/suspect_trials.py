"""Has other processes try groups of suspected runs, and ends the lease of each process that ended.

A process that waits for another one knows at once that it died, so its runs are tried again without waiting for the
end of a lease. If this process dies, those that it started drain, and their leases expire as those of all workers do.

Each process reads a line of run ids from its standard input, tries them, and writes a byte into a pipe. It ends when
its input is closed.
"""

import logging
import os
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID, uuid4

import psycopg

from runtime.execution import crash_loops
from runtime.store import pool, suspects, workers
from runtime.store.pool import Connection

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
SLOW_SECONDS = 10.0  # a process that has a group for longer does not count: only slow calls keep it
SLOW = 3  # times as many processes as `max_groups`, with the slow ones
IDLE_SECONDS = 10.0  # until a process without a group is ended
FAILED_SECONDS = 10.0  # until the next start, after a process that ended before it had a lease


@dataclass(slots=True, kw_only=True, eq=False)
class SuspectTrial:
    """A process, which is the worker of this id, and the suspected runs that it has `since` then; none while idle."""

    worker: UUID
    process: subprocess.Popen[bytes]
    answers: int
    runs: tuple[UUID, ...] = ()
    since: float = 0.0

    def begin(self, runs: Sequence[UUID]) -> None:
        """Have the process try these runs. If it has just died, they are tried by the next one."""
        self.runs, self.since = tuple(runs), time.monotonic()
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(f"{' '.join(map(str, runs))}\n".encode())

    def look(self) -> None:
        """Find out whether the process has released all its runs."""
        with suppress(BlockingIOError):
            if os.read(self.answers, 1):
                self.runs, self.since = (), time.monotonic()

    def close(self) -> None:
        """End the process once it has no runs."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def forget(self) -> None:
        """Close the files to the ended process."""
        self.close()
        os.close(self.answers)


class SuspectTrials:
    """The processes that one `isolated` process started.

    `max_groups` have a group at once, and some more if calls are slow. `command` starts one. It gets the id of the
    worker that it will be, and the number of the file to which it answers.
    """

    def __init__(self, command: Sequence[str], max_groups: int) -> None:
        self._command = command
        self._max_groups = max_groups
        self._trials: list[SuspectTrial] = []
        self._paused_until = float("-inf")

    def look(self, connection: Connection) -> None:
        """End the leases of ended processes, then have the groups that wait tried, as far as they fit."""
        for trial in self._trials.copy():
            if trial.process.poll() is None:
                trial.look()
            else:
                self._remove(connection, trial)
        while (free := self._free()) > 0:
            tried = [run for trial in self._trials for run in trial.runs]
            group = crash_loops.next_group(suspects.waiting(connection, but=tried), free)
            if not group:
                self._close_idle()
                return
            if len(group) == 1:
                suspects.count_as_alone(connection, group[0].run)
            trial = next(iter(self._idle()), None) or self._start()
            log.warning("Process %s tries %d suspected runs", trial.process.pid, len(group))
            trial.begin([suspect.run for suspect in group])

    def stop(self) -> None:
        """Drain every process, and wait for its end."""
        for trial in self._trials:
            trial.process.terminate()
        for trial in self._trials:
            trial.process.wait()
            trial.forget()

    def _free(self) -> int:
        """Return how many groups more may be tried now."""
        now = time.monotonic()
        if now < self._paused_until:
            return 0
        ages = [now - trial.since for trial in self._trials if trial.runs]
        young = sum(age < SLOW_SECONDS for age in ages)
        return min(self._max_groups - young, SLOW * self._max_groups - len(ages))

    def _idle(self) -> list[SuspectTrial]:
        return [trial for trial in self._trials if not trial.runs and trial.process.poll() is None]

    def _close_idle(self) -> None:
        for trial in self._idle():
            if time.monotonic() - trial.since >= IDLE_SECONDS:
                trial.close()

    def _start(self) -> SuspectTrial:
        worker = uuid4()
        answers, answering = os.pipe()
        os.set_blocking(answers, False)
        try:
            process = subprocess.Popen(
                [*self._command, str(worker), str(answering)],
                bufsize=0,
                stdin=subprocess.PIPE,
                pass_fds=[answering],
            )
        finally:
            os.close(answering)
        trial = SuspectTrial(worker=worker, process=process, answers=answers)
        self._trials.append(trial)
        return trial

    def _remove(self, connection: Connection, trial: SuspectTrial) -> None:
        had_lease = workers.end_lease(connection, trial.worker)
        self._trials.remove(trial)
        trial.forget()
        code = trial.process.returncode
        if code and not had_lease:
            self._paused_until = time.monotonic() + FAILED_SECONDS
        if code or trial.runs:
            runs = ", ".join(map(str, trial.runs))
            log.critical(
                "Process %s ended with %s and these runs: %s", trial.process.pid, code, runs
            )


def run(stop: threading.Event, trials: SuspectTrials) -> None:
    """Try suspected runs until `stop`; reconnect whenever Postgres was unreachable."""
    while not stop.is_set():
        try:
            with pool.own("signoff isolated") as connection:
                while not stop.wait(LOOK_SECONDS):
                    trials.look(connection)
        except psycopg.Error as exc:
            log.warning("Suspected runs wait, Postgres is unreachable: %s", exc)
            stop.wait(LOOK_SECONDS)
    trials.stop()

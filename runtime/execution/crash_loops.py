"""Finds the run that kills its workers among those that they lost, and quarantines it.

Every run in a process that dies loses its worker. One loss proves nothing: any worker resumes the run at once. Two
losses in a row, without a finished effect between, make a run suspected. The process `isolated` tries suspected runs
in groups, each in a process of its own. A run whose effect ends there is an ordinary run again. The runs of a group
that dies are tried again in smaller groups, and after two lost groups alone. A run that costs SIGNOFF_POISON_LOSSES
processes their life alone is quarantined.

So a run that kills its worker costs two workers and two groups of any size; the others of the second group
are tried alone next. The groups are so large that the runs of a full worker are all tried at once: no run waits for
the slow call of another group.

The process `isolated` waits for those that it started, so it knows at once when one died: the runs are tried again
without waiting for the end of a lease. If it dies itself, they drain, and their leases expire as those of all workers
do. Each process reads a line of run ids from its standard input, tries them, and writes a byte into a pipe. It ends
when its input is closed.
"""

import logging
import math
import os
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID, uuid4

import psycopg
from django.conf import settings

from runtime.store import leases, pool, workers
from runtime.store.leases import ALONE, GROUPS, RunClaim, Suspect
from runtime.store.pool import Connection

log = logging.getLogger(__name__)

IN_A_ROW = 2
GATHER_SECONDS = 1.0  # a worker suspects the runs of a dead one one by one, with shorter pauses
LOOK_SECONDS = 0.5
SLOW_SECONDS = 10.0  # a process that has a group for longer does not count: only slow calls keep it
SLOW = 3  # times as many processes as `max_groups`, with the slow ones
IDLE_SECONDS = 10.0  # until a process without a group is ended
FAILED_SECONDS = 10.0  # until the next start, after a process that ended before it had a lease


def needs_isolation(claim: RunClaim) -> bool:
    """Return whether the run is tried in a group instead of in this worker."""
    return not claim.isolated and claim.lost_leases >= IN_A_ROW


def select_next_group(waiting: Sequence[Suspect], free: int) -> Sequence[Suspect]:
    """Return the suspects to try next in one process: a part of `waiting`, which is in order.

    `free` is how many more processes can be started now. They share the runs that lost as many groups as the first.
    While more runs become suspected none is tried, for three seconds at most: the first ones would take all processes.
    """
    if not waiting:
        return ()
    is_gathering = any(
        suspect.losses == 0 and suspect.waits < GATHER_SECONDS for suspect in waiting
    )
    if is_gathering and waiting[0].waits < 3 * GATHER_SECONDS:
        return ()
    lost = waiting[0].losses
    alike = [suspect for suspect in waiting if suspect.losses == lost]
    limit = GROUPS[lost] if lost < ALONE else 1
    return alike[: min(limit, math.ceil(len(alike) / free))]


def quarantine_reason(claim: RunClaim) -> str | None:
    """Return why an isolated run is quarantined, or None if it is tried again."""
    alone = claim.lost_leases - ALONE
    if not claim.isolated or alone < settings.SIGNOFF_POISON_LOSSES:
        return None
    return (
        f"{alone} workers in a row died or lost it while they had no other run,"
        f" the last one at position {claim.position}"
    )


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
        while (free := self._free()) > 0:
            tried = [run for trial in self._trials for run in trial.runs]
            group = select_next_group(leases.list_waiting_suspects(connection, but=tried), free)
            if not group:
                for trial in self._idle():
                    if time.monotonic() - trial.since >= IDLE_SECONDS:
                        trial.close()
                return
            if len(group) == 1:
                leases.count_as_alone(connection, group[0].run)
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


def run(stop: threading.Event, trials: SuspectTrials) -> None:
    """Try suspected runs until `stop`; reconnect whenever Postgres was unreachable."""
    while not stop.is_set():
        try:
            with pool.open_own("signoff isolated") as connection:
                while not stop.wait(LOOK_SECONDS):
                    trials.look(connection)
        except psycopg.Error as exc:
            log.warning("Suspected runs wait, Postgres is unreachable: %s", exc)
            stop.wait(LOOK_SECONDS)
    trials.stop()

"""What a worker process has for its runs: slots, recent runs, runs that it skips, when it yields one, and pauses."""

import functools
import logging
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Concatenate, ParamSpec, Protocol, TypeVar
from uuid import UUID

import psycopg
from django.db import DatabaseError, InterfaceError, connections

from runtime.core.documents.continuations import Conversations
from runtime.core.run.continuation import Continuation, FrameState
from runtime.core.run.planning import is_under_way, plan
from runtime.errors import LeaseLost, UnknownAgent
from runtime.execution.effects.pool import EffectPool
from runtime.execution.heartbeat import ClaimedRun, Drain, Heartbeat
from runtime.ports.approvals import ApprovalPort
from runtime.ports.effects import EffectHandler
from runtime.store import leases, pool, workers
from runtime.store.pool import Connection
from runtime.store.tables import kill_switches
from runtime.store.tables.journal import Row

log = logging.getLogger(__name__)

RUN_SLOTS = 8
YIELD_STEPS, YIELD_SECONDS = 50, 30.0
RETRY_SECONDS = 0.5  # between two attempts while Postgres is unreachable

# Characters of stored entries. With the conversations read from them they take 4.4 times as much memory.
MAX_CHARACTERS = 4 * 1024 * 1024
MAX_RUNS = 256  # in the cache: the state of a short one takes more memory than its entries

# Of runs that this process could not advance.
MIN_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 1.0, 60.0
FORGET_SECONDS = 300.0

# Those of these errors that `pool.is_passing` accepts are retried.
DATABASE_ERRORS = (psycopg.Error, DatabaseError, InterfaceError)

P = ParamSpec("P")
T = TypeVar("T")


class RunSlots:
    """Limits how many runs of a process are active at a time.

    A run that waits for a model blocks a thread, which costs little. An active run needs the interpreter and Postgres.
    A runner holds a slot while it works and releases it while it waits, so a process needs at most as many connections
    as slots. For the first millisecond of a wait it keeps its slot if other slots are free. When it releases the slot,
    it closes the connections that an author's rules opened through Django.
    """

    def __init__(self, number: int = RUN_SLOTS) -> None:
        self._free: queue.SimpleQueue[None] = queue.SimpleQueue()  # waits in C, unlike a semaphore
        for _ in range(number):
            self._free.put(None)
        self.acquire = self._free.get  # waits for a slot

    def has_free_slot(self) -> bool:
        """Return whether no runner waits for a slot."""
        return not self._free.empty()

    def release(self) -> None:
        """Release a slot, with the connections of its thread."""
        connections.close_all()
        self._free.put(None)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownEntries:
    """The first entries of a run, as rows that this process verified or wrote, and the conversations read from them.

    `now` is the state after them, None if there are none.
    """

    rows: tuple[Row, ...] = ()
    conversations: Conversations = field(default_factory=Conversations)
    now: Continuation | None = None


class RecentRuns:
    """Caches the runs that this process released last, so that it reads, verifies and folds their entries once.

    When such a run is claimed, its rows are compared with the rows that this process verified or wrote: texts,
    positions, MACs and key ids. If the first ones are the same, only the later ones are verified and read. Else all of
    them are. A run that is taken leaves the cache.
    """

    def __init__(self) -> None:
        # The run released last is at the end, each with its characters.
        self._runs: OrderedDict[UUID, tuple[KnownEntries, int]] = OrderedDict()
        self._characters = 0
        self._lock = threading.Lock()

    def put(
        self, run: UUID, rows: Sequence[Row], conversations: Conversations, now: Continuation
    ) -> bool:
        """Keep these entries with the state after them, and drop the oldest runs until there is room.

        Return whether the run is a long one, whose conversations were read.
        """
        is_long = 0 < conversations.position <= len(rows)
        if not is_long and len(rows) != now.position:
            return False  # earlier ones are gone
        if conversations.position > len(rows):
            conversations.reset()  # they have read the entry of a step that was not written
        entries = KnownEntries(rows=tuple(rows), conversations=conversations, now=now)
        characters = sum([len(body) for _, body, *_ in rows])
        with self._lock:
            _, before = self._runs.pop(run, (None, 0))
            self._runs[run] = entries, characters
            self._characters += characters - before
            while self._characters > MAX_CHARACTERS or len(self._runs) > MAX_RUNS:
                _, (_, characters) = self._runs.popitem(last=False)
                self._characters -= characters
        return is_long

    def pop(self, run: UUID, rows: tuple[Row, ...]) -> KnownEntries:
        """Return the cached entries if the run's rows begin with them, else none."""
        with self._lock:
            entries, characters = self._runs.pop(run, (None, 0))
            self._characters -= characters
        is_same = entries is not None and rows[: len(entries.rows)] == entries.rows
        return entries if entries is not None and is_same else KnownEntries()


@dataclass(slots=True, kw_only=True)
class _SkippedRun:
    times: int
    until: float
    signal_version: int
    passed_on: float


class RunBackoff:
    """The runs that this process could not advance, and skips for a while. `clock` is a monotonic one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._runs: dict[UUID, _SkippedRun] = {}

    def add(self, run: UUID, signal_version: int) -> None:
        """Skip the run for twice as long as last time, or until it receives a signal."""
        with self._lock:
            at = self._clock()
            # Other workers have advanced the oldest ones since.
            self._runs = {
                skipped: refused
                for skipped, refused in self._runs.items()
                if refused.until + FORGET_SECONDS >= at
            }
            last = self._runs.get(run)
            times = last.times + 1 if last else 1
            pause = min(MAX_PAUSE_SECONDS, MIN_PAUSE_SECONDS * 2 ** (times - 1))
            self._runs[run] = _SkippedRun(
                times=times, until=at + pause, signal_version=signal_version, passed_on=at
            )

    def drop(self, run: UUID) -> None:
        """Stop skipping the run, because this process has advanced it."""
        with self._lock:
            self._runs.pop(run, None)

    def find_skipped_signal(self, run: UUID) -> int | None:
        """Return the signal count with which the run is skipped now; None if it is not skipped."""
        with self._lock:
            refused = self._runs.get(run)
        return refused.signal_version if refused and self._clock() < refused.until else None

    def forward_once(self, run: UUID) -> bool:
        """Return whether to forward a hint to another worker: once in each back-off, or hints would circulate."""
        with self._lock:
            at, refused = self._clock(), self._runs.get(run)
            if refused is None or at - refused.passed_on < MIN_PAUSE_SECONDS:
                return False
            refused.passed_on = at
            return True


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerContext:
    """The tools of one worker process for advancing runs."""

    handler: EffectHandler
    approvals: ApprovalPort
    effect_pool: EffectPool
    heartbeat: Heartbeat
    backoff: RunBackoff = field(default_factory=RunBackoff)
    slots: RunSlots = field(default_factory=RunSlots)
    recent: RecentRuns = field(default_factory=RecentRuns)


class YieldPolicy:
    """Decides when a worker yields a run that has more to do, and releases it in time.

    Once a run yields, nothing new starts. Running calls may finish and are journaled; then the runner releases the run,
    due at once, for another worker. A call that does not finish before the end of the drain is given up. The worker
    that claims the run next treats it as lost work, by its effect class.

    A run yields when its process drains, when one of its agents is switched off, and when it took 50 steps or 30 s and
    other runs wait. A suspected run also yields when it made progress. A run whose agent is switched off is claimed
    again after the switch is lifted.
    """

    def __init__(self, claimed: ClaimedRun, draining: Drain) -> None:
        self._claimed = claimed
        self.draining = draining
        self.made_progress = False  # set by a finished effect
        self._is_suspect = claimed.claim.isolated
        self._losses_count = True
        self._steps = 0
        self._since = time.monotonic()
        self.should_yield = False

    def count_step(self) -> bool:
        """Count a step. Return True after 50 steps or 30 s: it is time to see whether other runs wait for a worker."""
        self._steps += 1
        if self._steps < YIELD_STEPS and time.monotonic() - self._since < YIELD_SECONDS:
            return False
        self._steps, self._since = 0, time.monotonic()
        return True

    def take_losses(self) -> bool:
        """Say once whether the run's lost leases no longer count: it made progress since."""
        over = self._losses_count and self.made_progress
        self._losses_count = not self.made_progress
        return over

    def ended(self, now: Continuation) -> bool:
        """Return whether no new effect may start."""
        tried = self._is_suspect and self.made_progress
        if self.draining.started or tried or self.should_yield:
            return True
        return bool(self._claimed.kill_switches) and self._stopped(now)

    @property
    def gives_up(self) -> bool:
        """Return whether the runner stops waiting for running calls."""
        return self.draining.started and self.draining.is_over()

    def has_ready_work(self, now: Continuation) -> bool:
        """Return whether a released run has work for another worker at once."""
        return self._has_remaining_work(now) and not self._stopped(now)

    def compute_due_time(self, now: Continuation, at: datetime) -> datetime | None:
        """Return the due time of a run released at `at`; None if it has no more to do."""
        if not self._has_remaining_work(now):
            return None
        if self._stopped(now) and not self._claimed.kill_switches & {
            kill_switches.EVERY_AGENT,
            now.agent,
        }:
            # A claim checks only the run's own agent. The run is due now and then, to see whether this switch was
            # lifted.
            return at + timedelta(seconds=leases.BACK_OFF_SECONDS)
        return at

    def _has_remaining_work(self, now: Continuation) -> bool:
        return not now.ended and self.ended(now) and bool(plan(now) or is_under_way(now))

    def _stopped(self, now: Continuation) -> bool:
        names = self._claimed.kill_switches
        at_work = (frame.agent for frame in now.frames.values() if frame.state != FrameState.CLOSED)
        return not names.isdisjoint({kill_switches.EVERY_AGENT, now.agent, *at_work})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPauses:
    """The pauses of a claimed run in an outage."""

    claimed: ClaimedRun
    slots: RunSlots

    def pause(self, seconds: float, cause: Exception | None = None) -> None:
        """Wait without a slot. Raises LeaseLost once another worker has the run."""
        # Eight slots serve all runs of the process, so a run that waits releases its own.
        self.slots.release()
        self.claimed.lost.wait(seconds)
        self.slots.acquire()
        if self.claimed.lost.is_set():
            raise LeaseLost from cause


class _HasPauses(Protocol):
    @property
    def pauses(self) -> RunPauses | None: ...


S = TypeVar("S", bound=_HasPauses)


def repeat_until_reachable(
    method: Callable[Concatenate[S, P], T],
) -> Callable[Concatenate[S, P], T]:
    """Have a method repeated until Postgres is reachable again: a lost connection must not lose an outcome.

    The method then also raises LeaseLost, once another worker has the run.
    """

    @functools.wraps(method)
    def repeat(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        while True:
            try:
                return method(self, *args, **kwargs)
            except DATABASE_ERRORS as exc:
                if self.pauses is None or not pool.is_passing(exc):
                    raise
                run = self.pauses.claimed.claim.run
                log.warning("Run %s: Postgres is unreachable: %s", run, exc)
                self.pauses.pause(RETRY_SECONDS, exc)

    return repeat


def is_for_another(connection: Connection, agent: str, handler: EffectHandler) -> bool:
    """Return whether this process does not have the agent, but a live worker has it."""
    return not has_agent(handler, agent) and workers.has_job_worker(connection, agent)


def has_agent(handler: EffectHandler, agent: str) -> bool:
    """Return whether this process has the agent."""
    try:
        handler.agent(agent)
    except UnknownAgent:
        return False
    return True

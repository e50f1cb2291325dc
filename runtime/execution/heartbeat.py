"""Renews the lease of a worker process every second, in one thread with a connection of its own.

It wakes the runner of a run when a signal arrives, when the run is lost, and when the lease allows effects again
after an outage. It also stores what the process has counted of its work, which costs a step a few additions.
"""

import json
import logging
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID, uuid4

import psycopg
from django.conf import settings

from runtime.store import leases, pool, workers
from runtime.store.leases import RunClaim
from runtime.store.steps import Measures

log = logging.getLogger(__name__)

# One row a second for the whole process, however many runs it has.
STATEMENT = f"""
    WITH beat AS ({workers.BEAT}), held AS ({leases.HELD})
    SELECT held.owner, held.mailbox, held.stops, {leases.ASYNC_COMMIT} FROM beat LEFT JOIN held ON true
"""
BEAT_SECONDS = 1.0
MARGIN = 0.1  # of a lease
RELEASE_GRACE_SECONDS = 2.0  # after the end of a drain, for releasing runs

# Returns the seconds since a fixed time before this process began. On Linux CLOCK_MONOTONIC stops while the machine
# sleeps, so a lease that expired meanwhile would seem valid.
elapsed = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass(slots=True)
class Lease:
    """This process's lease by its own clock. It counts from the sending of the renewal, which is never too late."""

    surely_until: float = float("-inf")

    def record_renewal(self, sent: float) -> None:
        """Extend the lease from `sent`, the time at which the renewal was sent."""
        self.surely_until = sent + settings.SIGNOFF_LEASE_SECONDS * (1 - MARGIN)

    def is_valid(self) -> bool:
        """Return whether the lease is certainly valid a moment longer."""
        return elapsed() <= self.surely_until


@dataclass(slots=True, kw_only=True, eq=False)
class ClaimedRun:
    """A claimed run of this process. `wake` is called from the heartbeat's thread.

    `kill_switches` names the stopped agents, as of the last beat.
    """

    claim: RunClaim
    lease: Lease
    wake: Callable[[], None]
    measures: Measures = field(default_factory=Measures)
    signal_version: int | None = None
    kill_switches: frozenset[str] = frozenset()
    lost: threading.Event = field(default_factory=threading.Event)
    starved: bool = False

    def has_budget(self) -> bool:
        """Return whether an effect may start: the run is not lost, and the lease is certainly valid a moment longer.

        If not, the next renewal wakes the runner.
        """
        self.starved = self.lost.is_set() or not self.lease.is_valid()
        return not self.starved


class Drain:
    """The end of this process. Only the first start counts."""

    def __init__(self) -> None:
        self.started = False  # whether this process claims no more runs and starts no more effects
        self._over_at = math.inf

    def is_over(self, margin: float = 0.0) -> bool:
        """Return whether the time for running calls is over, and `margin` seconds more."""
        return time.monotonic() >= self._over_at + margin

    def start(self, within: float) -> None:
        """Start the drain: running calls have these seconds to finish."""
        if not self.started:
            self._over_at, self.started = time.monotonic() + within, True


class Heartbeat:
    """The lease of this process. Start it once, after fork.

    `agents` are the versions it has, by name, `worker` its id if others know it already. An `isolated` process
    advances only runs that may kill it.
    """

    def __init__(
        self,
        agents: Mapping[str, str] | None = None,
        *,
        worker: UUID | None = None,
        isolated: bool = False,
    ) -> None:
        self.draining = Drain()
        self.lease = Lease()
        self.measures = Measures()
        self._claimed: dict[UUID, ClaimedRun] = {}  # by owner
        self._abandoned: dict[UUID, UUID] = {}  # runs by owner, to release with the next beat
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.worker = worker or uuid4()  # the id of this process for others
        self._worker = {
            "worker": self.worker,
            "host": socket.gethostname(),
            "process": os.getpid(),
            "isolated": isolated,
            "hung": False,
            "agents": json.dumps(dict(agents or {})),
        }

    def start(self) -> None:
        """Beat once, so that the lease is valid before a run is claimed under it, and then every second."""
        try:
            with pool.open_own() as connection:
                self._beat(connection)
        except psycopg.Error as exc:
            log.warning("Heartbeat missed: %s", exc)
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread and wait for its last beat."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def watch(self, claim: RunClaim, wake: Callable[[], None]) -> ClaimedRun:
        """Watch the run until `unwatch`."""
        claimed = ClaimedRun(
            claim=claim,
            lease=self.lease,
            wake=wake,
            measures=self.measures,
            kill_switches=claim.kill_switches,
        )
        with self._lock:
            self._claimed[claim.owner] = claimed
        return claimed

    def unwatch(self, claim: RunClaim) -> None:
        """Stop watching a run that is released or lost."""
        with self._lock:
            del self._claimed[claim.owner]

    def abandon(self, run: UUID, owner: UUID) -> None:
        """Release a run that this process does not advance, as soon as Postgres is reachable.

        The lease of a live process stays valid, so no other worker would ever get the run.
        """
        with self._lock:
            self._abandoned[owner] = run

    def drain(self, within: float) -> None:
        """Have every runner release its run. Signal handlers may call it: it takes no lock."""
        self.draining.start(within)
        for claimed in list(self._claimed.values()):
            claimed.wake()

    def retire(self, within: float) -> None:
        """Drain, and report with every further beat that too many tools of this process hang."""
        self._worker["hung"] = True
        self.drain(within)

    @property
    def is_hung(self) -> bool:
        """Whether too many tools of this process hang."""
        return bool(self._worker["hung"])

    def check_signals(self, run: UUID) -> None:
        """Have the runner of a run read its signals, because a hint for the run arrived here."""
        with self._lock:
            claimed_runs = [entry for entry in self._claimed.values() if entry.claim.run == run]
        for claimed in claimed_runs:
            claimed.signal_version = None
            claimed.wake()

    def _run(self) -> None:
        connection: pool.Connection | None = None
        while not self._stop.wait(min(BEAT_SECONDS, settings.SIGNOFF_LEASE_SECONDS / 4)):
            if self.draining.is_over():
                with self._lock:
                    claimed_runs = list(self._claimed.values())
                for claimed in claimed_runs:
                    if self.draining.is_over(RELEASE_GRACE_SECONDS):
                        claimed.lost.set()
                    claimed.wake()
            try:
                if connection is None or connection.closed:
                    connection = pool.open_own()
                self._beat(connection)
            except Exception as exc:  # or every run of this process would lose its lease
                is_expected = isinstance(exc, psycopg.Error)
                log.warning("Heartbeat missed: %s", exc, exc_info=None if is_expected else exc)
                if connection is not None:
                    connection.close()
        if connection is not None:
            connection.close()

    def _beat(self, connection: pool.Connection) -> None:
        with self._lock:
            claimed_by_owner, abandoned = dict(self._claimed), dict(self._abandoned)
        sent = elapsed()
        ours = self._renew(connection, claimed_by_owner)
        self.lease.record_renewal(sent)
        for owner, claimed in claimed_by_owner.items():
            if owner not in ours:
                claimed.lost.set()
                claimed.wake()
                continue
            signal_version, stops = ours[owner]
            if (
                signal_version != claimed.signal_version
                or stops != claimed.kill_switches
                or claimed.starved
            ):
                claimed.signal_version, claimed.kill_switches = signal_version, stops
                claimed.wake()
        for owner, run in abandoned.items():
            leases.abandon(connection, run, owner)
            with self._lock:
                del self._abandoned[owner]

    def _renew(
        self, connection: pool.Connection, claimed_by_owner: Mapping[UUID, ClaimedRun]
    ) -> dict[UUID, tuple[int, frozenset[str]]]:
        """Renew the lease. Returns the signal count and the stopped agents of each run still held, by owner."""
        rows = connection.execute(
            STATEMENT,
            {
                "runs": [claimed.claim.run for claimed in claimed_by_owner.values()],
                "owners": list(claimed_by_owner),
                "lease": settings.SIGNOFF_LEASE_SECONDS,
                "measures": self.measures.stored(),
                **self._worker,
            },
        ).fetchall()
        return {
            owner: (signal_version, frozenset(stops))
            for owner, signal_version, stops, _ in rows
            if owner is not None
        }

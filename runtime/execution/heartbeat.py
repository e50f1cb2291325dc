"""Renews the lease of a worker process every second, in one thread with a connection of its own.

It wakes the runner of each run when a signal arrived, when the run is lost, and when the lease allows effects again
after Postgres was out of reach.
"""

import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from uuid import UUID, uuid4

import psycopg

from runtime.execution import clock
from runtime.store import leases, pool, workers
from runtime.store.leases import Claim

log = logging.getLogger(__name__)

STATEMENT = f"""
    WITH beat AS ({workers.BEAT}), held AS ({leases.HELD})
    SELECT held.owner, held.mailbox, held.stops, {leases.ASYNC_COMMIT} FROM beat LEFT JOIN held ON true
"""

BEAT_SECONDS = 1.0
MARGIN = 0.1  # of a lease
RELEASE_GRACE_SECONDS = 2.0  # after a drain is over, to release the runs


@dataclass(slots=True)
class Lease:
    """This process's lease, judged by its own clock. It counts from when the renewal was sent, which is no later."""

    surely_until: float = float("-inf")

    def renewed(self, sent: float) -> None:
        self.surely_until = sent + leases.lease_seconds() * (1 - MARGIN)

    def lasts(self) -> bool:
        """Whether it surely lasts a moment longer."""
        return clock.elapsed() <= self.surely_until


@dataclass(slots=True, kw_only=True, eq=False)
class ClaimedRun:
    """One run of this process. `wake` is called from the heartbeat's thread on news.

    `kill_switches` names the agents that are switched off, as of the last beat.
    """

    claim: Claim
    lease: Lease
    wake: Callable[[], None]
    signal_version: int | None = None
    kill_switches: frozenset[str] = frozenset()
    lost: threading.Event = field(default_factory=threading.Event)
    starved: bool = False

    def has_budget(self) -> bool:
        """Whether an effect may start: the run is not lost, and the lease surely lasts a moment longer.

        After a no the next renewal wakes the runner that asked.
        """
        self.starved = self.lost.is_set() or not self.lease.lasts()
        return not self.starved


class Drain:
    """The end of this process. Only the first start counts."""

    def __init__(self) -> None:
        self._over_at: float | None = None

    @property
    def started(self) -> bool:
        """Whether this process claims no more runs and starts no more effects."""
        return self._over_at is not None

    def is_over(self, margin: float = 0.0) -> bool:
        """Whether running calls had their time, and `margin` seconds more."""
        return self._over_at is not None and time.monotonic() >= self._over_at + margin

    def start(self, within: float) -> None:
        """Give running calls so many seconds."""
        if self._over_at is None:
            self._over_at = time.monotonic() + within


class Heartbeat:
    """The lease of this process. Start it once, after fork. `agents` are the versions it has, by name;
    `isolated` says that it takes one run at a time, of those that may kill it.
    """

    def __init__(self, agents: Mapping[str, str] | None = None, *, isolated: bool = False) -> None:
        self.draining = Drain()
        self.isolated = isolated
        self.lease = Lease()
        self._held: dict[UUID, ClaimedRun] = {}  # by owner
        self._abandoned: dict[UUID, UUID] = {}  # runs by owner, to release with the next beat
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.worker = uuid4()  # this process, as others know it
        self._worker = {
            "worker": self.worker,
            "host": socket.gethostname(),
            "process": os.getpid(),
            "isolated": isolated,
            "hung": False,
            "agents": json.dumps(dict(agents or {})),
        }

    def start(self) -> None:
        """Beat once, so that the lease lasts before a run is claimed under it, and then every second."""
        try:
            with pool.own() as connection:
                self._beat(connection)
        except psycopg.Error as exc:
            log.warning("heartbeat missed: %s", exc)
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    @contextmanager
    def watched(self, claim: Claim, wake: Callable[[], None]) -> Iterator[ClaimedRun]:
        """Watch the run for as long as the block lasts."""
        held = ClaimedRun(
            claim=claim, lease=self.lease, wake=wake, kill_switches=claim.kill_switches
        )
        with self._lock:
            self._held[claim.owner] = held
        try:
            yield held
        finally:
            with self._lock:
                del self._held[claim.owner]

    def abandon(self, run: UUID, owner: UUID) -> None:
        """Release a run on which this process does not work, as soon as Postgres takes it.

        The lease of a live process lasts, so no other worker would ever get the run.
        """
        with self._lock:
            self._abandoned[owner] = run

    def drain(self, within: float) -> None:
        """Have every runner release its run. For signal handlers too: it takes no lock."""
        self.draining.start(within)
        for held in list(self._held.values()):
            held.wake()

    def retire(self, within: float) -> None:
        """Drain, and say with every further beat that this process has too many hung tools to be of use."""
        self._worker["hung"] = True
        self.drain(within)

    @property
    def is_hung(self) -> bool:
        return bool(self._worker["hung"])

    def check_signals(self, run: UUID) -> None:
        """Have the runner of a run read its signals, because a hint for the run came to this process."""
        with self._lock:
            found = [one for one in self._held.values() if one.claim.run == run]
        for held in found:
            held.signal_version = None
            held.wake()

    def _run(self) -> None:
        connection: pool.Connection | None = None
        while not self._stop.wait(min(BEAT_SECONDS, leases.lease_seconds() / 4)):
            if self.draining.is_over():
                self._force_release()
            try:
                if connection is None or connection.closed:
                    connection = pool.own()
                self._beat(connection)
            except Exception as exc:  # or every run of this process would lose its lease
                known = isinstance(exc, psycopg.Error)
                log.warning("heartbeat missed: %s", exc, exc_info=None if known else exc)
                if connection is not None:
                    connection.close()
        if connection is not None:
            connection.close()

    def _force_release(self) -> None:
        """Wake every runner. After a grace, have those that could not release their run give up."""
        with self._lock:
            held = list(self._held.values())
        for one in held:
            if self.draining.is_over(RELEASE_GRACE_SECONDS):
                one.lost.set()
            one.wake()

    def _beat(self, connection: pool.Connection) -> None:
        with self._lock:
            held, abandoned = dict(self._held), dict(self._abandoned)
        sent = clock.elapsed()
        ours = self._renew(connection, held)
        self.lease.renewed(sent)
        for owner, one in held.items():
            if owner not in ours:
                one.lost.set()
                one.wake()
                continue
            signal_version, stops = ours[owner]
            if signal_version != one.signal_version or stops != one.kill_switches or one.starved:
                one.signal_version, one.kill_switches = signal_version, stops
                one.wake()
        for owner, run in abandoned.items():
            leases.abandon(connection, run, owner)
            with self._lock:
                del self._abandoned[owner]

    def _renew(
        self, connection: pool.Connection, held: Mapping[UUID, ClaimedRun]
    ) -> dict[UUID, tuple[int, frozenset[str]]]:
        """Renew the lease. Returns the signal count and the switched-off agents of each run still held, by owner."""
        rows = connection.execute(
            STATEMENT,
            {
                "runs": [one.claim.run for one in held.values()],
                "owners": list(held),
                "lease": leases.lease_seconds(),
                **self._worker,
            },
            prepare=True,
        ).fetchall()
        return {
            owner: (signal_version, frozenset(stops))
            for owner, signal_version, stops, _ in rows
            if owner is not None
        }

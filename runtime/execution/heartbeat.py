"""One thread per worker process that renews all its leases every second, on a connection of its own.

It tells each run's coordinator when a signal arrived, when the lease is lost, and when the local
lease budget allows effects again after Postgres was out of reach.
"""

import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from uuid import UUID, uuid4

import psycopg

from runtime.execution import clock
from runtime.store import leases, pool, workers
from runtime.store.calm import Calm
from runtime.store.leases import Claim

log = logging.getLogger(__name__)

STATEMENT = f"WITH beat AS ({workers.BEAT}), {leases.RENEW}"

BEAT_SECONDS = 1.0
MARGIN = 0.1  # of a lease
LAST_WORD_SECONDS = 2.0  # after the end of a shift, for letting go of its runs


@dataclass(slots=True, kw_only=True, eq=False)
class Held:
    """One run of this process. `wake` is called from the heartbeat's thread on news.

    Its lease is renewed once its claim is made. Until the first renewal it counts from when the run was looked at,
    which is no later. `stops` names the agents that are stopped, as of the last beat.
    """

    claim: Claim
    wake: Callable[[], None]
    renewed_at: float = field(default_factory=clock.elapsed)
    mailbox: int | None = None
    stops: frozenset[str] = frozenset()
    lost: threading.Event = field(default_factory=threading.Event)
    starved: bool = False

    def make(self) -> None:
        """A step has made the claim, or found it made."""
        if not self.claim.made:
            self.claim = replace(self.claim, made=True)

    def has_budget(self) -> bool:
        """Whether the lease surely lasts a moment longer, judged by this process's own clock.

        After a no the next renewal wakes whoever asked.
        """
        spent = clock.elapsed() - self.renewed_at
        self.starved = self.lost.is_set() or spent > leases.lease_seconds() * (1 - MARGIN)
        return not self.starved


class Shift:
    """How long this process works. The first word on its end counts."""

    def __init__(self) -> None:
        self._over_at: float | None = None

    @property
    def ends(self) -> bool:
        """Whether this process takes no more runs and starts no more effects."""
        return self._over_at is not None

    def over(self, margin: float = 0.0) -> bool:
        """Whether what is under way had its time, and `margin` seconds more."""
        return self._over_at is not None and time.monotonic() >= self._over_at + margin

    def end(self, within: float) -> None:
        if self._over_at is None:
            self._over_at = time.monotonic() + within


class Heartbeat:
    """The leases of this process. Start it once, after fork. `agents` are the versions it has, by name;
    `isolated` says that it takes one run at a time, of those that may kill it.
    """

    def __init__(self, agents: Mapping[str, str] | None = None, *, isolated: bool = False) -> None:
        self.shift = Shift()
        self.calm = Calm()
        self.isolated = isolated
        # By owner: two threads may look at one run at a time, and one of them will have it.
        self._held: dict[UUID, Held] = {}
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
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    @contextmanager
    def holding(self, claim: Claim, wake: Callable[[], None]) -> Iterator[Held]:
        """Renew the claim's lease, once there is one, for as long as the block lasts."""
        held = Held(claim=claim, wake=wake, stops=claim.stops)
        with self._lock:
            self._held[claim.owner] = held
        try:
            yield held
        finally:
            with self._lock:
                del self._held[claim.owner]

    def drain(self, within: float) -> None:
        """Have every coordinator let go of its run. For signal handlers too: it takes no lock."""
        self.shift.end(within)
        for held in list(self._held.values()):
            held.wake()

    def retire(self, within: float) -> None:
        """Drain, and say with every further beat that this process has too many hung tools to be of use."""
        self._worker["hung"] = True
        self.drain(within)

    @property
    def is_hung(self) -> bool:
        return bool(self._worker["hung"])

    def poke(self, run: UUID) -> None:
        """Somebody hinted at a run that this process holds: have its coordinator look at the mailbox."""
        with self._lock:
            found = [one for one in self._held.values() if one.claim.run == run]
        for held in found:
            held.mailbox = None
            held.wake()

    def _run(self) -> None:
        connection: pool.Connection | None = None
        while not self._stop.wait(min(BEAT_SECONDS, leases.lease_seconds() / 4)):
            if self.shift.over():
                self._hurry()
            try:
                if connection is None or connection.closed:
                    connection = pool.own()
                self._beat(connection)
            except Exception as exc:  # or every run of this process would lose its lease
                known = isinstance(exc, psycopg.Error)
                log.warning("heartbeat missed: %s", exc, exc_info=None if known else exc)
                self.calm.begin()
                if connection is not None:
                    connection.close()
        if connection is not None:
            connection.close()

    def _hurry(self) -> None:
        """Wake whoever still waits for something, and have whoever cannot even let go give up."""
        with self._lock:
            held = list(self._held.values())
        for one in held:
            if self.shift.over(LAST_WORD_SECONDS):
                one.lost.set()
            one.wake()

    def _beat(self, connection: pool.Connection) -> None:
        with self._lock:
            held = {owner: one for owner, one in self._held.items() if one.claim.made}
        sent = clock.elapsed()
        ours = self._renew(connection, held)
        for owner, one in held.items():
            if owner not in ours:
                one.lost.set()
                one.wake()
                continue
            mailbox, stops, renewed = ours[owner]
            if renewed:
                one.renewed_at = sent
            if mailbox != one.mailbox or stops != one.stops or (one.starved and renewed):
                one.mailbox, one.stops = mailbox, stops
                one.wake()

    def _renew(
        self, connection: pool.Connection, held: dict[UUID, Held]
    ) -> dict[UUID, tuple[int, frozenset[str], bool]]:
        """Renew every lease whose row is not locked, and say that this process is alive.

        Returns the mailbox of each run still held, by owner, the agents that are stopped, and whether its lease was
        renewed.
        """
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
        self.calm.look(rows[0][0])
        return {
            owner: (mailbox, frozenset(stops), renewed)
            for _, owner, mailbox, stops, renewed, _ in rows
            if owner is not None
        }
